// Fetches the page anew when a round has ended. Without it, "Refresh" does.
"use strict";
(() => {
  const live = document.getElementById("live");
  const word = document.getElementById("live-word");
  const link = document.getElementById("refresh");
  let busy = false, again = false, timer = 0;

  const show = (on) => { word.hidden = !on || stale(); link.hidden = !word.hidden; };
  const usual = (field) => field.defaultValue ?? ([...field.options].find((one) => one.defaultSelected) ?? field.options[0]).value;
  // What a person is filling in is not taken away.
  const filling = () => live.contains(document.activeElement) && document.activeElement.closest("form") ||
    [...live.querySelectorAll("input, select")].some((field) => field.value !== usual(field));
  const said = () => live.querySelector("[data-version]").dataset;
  const version = () => said().version;
  const stale = () => "stale" in said();

  const replace = (text) => {
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const href = focused && focused.getAttribute("href"), id = focused && focused.id;
    const scroll = document.getElementById("scroll"), left = scroll ? scroll.scrollLeft : 0;
    live.innerHTML = text;
    const next = document.getElementById("scroll");
    if (next) next.scrollLeft = left;
    if (!focused) return;
    const same = (id && document.getElementById(id)) ||
      [...live.querySelectorAll("a")].find((one) => one.getAttribute("href") === href);
    if (same) same.focus({ preventScroll: true });
  };

  const refresh = async () => {
    again = true;
    if (busy || document.hidden) return;
    if (filling()) { show(false); return; }
    busy = true;
    again = false;
    try {
      const answer = await fetch(location.href, { headers: { "X-Board-Part": "live" }, cache: "no-store" });
      // A proxy may answer in place of the board, such as with a page to sign in.
      if (answer.headers.get("X-Board-Part") !== "live") throw new Error();
      replace(await answer.text());
      show(events.readyState === EventSource.OPEN);
    } catch {
      show(false);
    }
    busy = false;
    if (again) later();
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.random() * 300);
  };
  const resume = () => { if (again) later(); };

  const events = new EventSource("/events");
  events.addEventListener("open", () => show(true));
  events.addEventListener("error", () => show(false));
  events.addEventListener("round", (event) => { if (event.lastEventId !== version()) later(); });
  document.addEventListener("visibilitychange", resume);
  document.addEventListener("focusout", () => setTimeout(resume));
  setInterval(refresh, 30000); // so that ages grow
})();
