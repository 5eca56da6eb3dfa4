"""What pages say, what they keep out, and what a browser may do with them."""

import dataclasses
import functools
import re

import pytest
from jinja2 import UndefinedError
from markupsafe import escape

from bind.door.catalogue import Offer
from bind.door.pages import views
from reconciler.blueprints import consent
from reconciler.core.refs import GroupResource
from reconciler.web import templates
from tests.support import door_pages
from tests.support.outlines import LONG, MARKUP, RTL, Outline

_PAGES = door_pages.every()


@functools.cache
def hostile_pages(text):
    """Return every page that shows texts of others, with this one in each place."""
    offer = Offer(
        text,
        text,
        GroupResource(text, text),
        text,
        text,
        text,
        text,
        text,
        f"javascript:{text}",
        (),
        (text,),
    )
    claim = {"resource": text, "version": text, "update": {"fields": [text]}}
    claims = (views.ClaimView(0, consent.terms(claim), required=True),)
    frame = views.Frame(text, text, text)
    card = views.Card(offer, f"/bind?s={text}", claims)
    form = {
        **{"offer": offer, "claims": claims, "csrf": text, "action": text},
        **{"problem": text, "frame": frame},
    }
    row = views.BindingRow(
        text,
        text,
        text,
        (text,),
        text,
        "bad",
        text,
        text,
        (views.ConditionRow(text, text, text, text, text),),
        text,
    )
    offers = (views.OfferRow(offer, (text,), True, text),)
    result = views.Result(text, text, text, (text,))
    return {
        "offer": views.html(views.OfferView(**form, may_bind=False, result=result)),
        "consent": views.html(views.ConsentView(**form, target=text, cid=text, called=text)),
        "resources": views.html(
            views.ResourcesView((card,), text, text, signed_in=True, called=text, frame=frame)
        ),
        "catalogue": views.html(
            views.CatalogueView(
                (*offers, dataclasses.replace(offers[0], may_bind=False)), 1, text, frame
            )
        ),
        "home": views.html(views.HomeView("", offers, frame)),
        "bindings": views.html(views.BindingsView((row,), True, frame)),
        "binding": views.html(views.BindingView(row, (text,), frame)),
        "error": views.html(views.ErrorView(400, text, text, text, text, frame)),
    }


@pytest.mark.parametrize("page", _PAGES)
def test_every_page_is_well_formed_and_has_one_heading_of_each_level_in_order(page):
    Outline(_PAGES[page]).check_order()


@pytest.mark.parametrize("page", _PAGES)
def test_no_page_has_a_script_a_style_of_its_own_or_anything_of_another_site(page):
    outline = Outline(_PAGES[page])
    for tag, attributes in outline.elements:
        assert tag not in {"script", "style", "iframe", "object", "base", "img"}
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert not attributes.get("action", "/").startswith("//")
        assert attributes.get("action", "/").startswith("/")
        if tag != "a":
            assert attributes.get("href", "/").startswith("/")


@pytest.mark.parametrize("page", _PAGES)
def test_every_input_has_a_label_and_every_table_a_caption(page):
    outline = Outline(_PAGES[page])
    labels = {one.get("for") for one in outline.all("label")}
    shown = [one for one in outline.all("input") if one.get("type") != "hidden"]
    assert {one["id"] for one in shown} <= labels
    assert len(outline.all("caption")) == len(outline.all("table"))
    assert outline.elements[outline.elements.index(("body", {})) + 1] == (
        "a",
        {"class": "skip", "href": "#content"},
    )


@pytest.mark.parametrize("page", hostile_pages(""))
@pytest.mark.parametrize("text", [MARKUP, RTL, LONG], ids=["markup", "rtl", "long"])
def test_texts_of_others_stay_text(page, text):
    html = hostile_pages(text)[page]
    outline = Outline(html)  # well-formed in spite of it
    plain = Outline(hostile_pages("plain")[page])
    assert [tag for tag, _ in outline.elements] == [tag for tag, _ in plain.elements]
    assert "script" not in [tag for tag, _ in outline.elements]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f]", "".join(outline.text))
    assert "49" not in outline.words()


def test_a_long_text_is_whole_where_it_is_the_subject_and_brief_in_a_table():
    found = hostile_pages(LONG)
    assert found["offer"].count("long") > 2_048
    shown = re.findall("<bdi>(.*?)</bdi>", found["catalogue"])
    assert {len(one) for one in shown} <= {160, len("Yes"), len("No")}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://docs.example.org/a?b=c#d", True),
        ("http://docs.example.org", False),
        ("javascript:alert(1)", False),
        ("https://user@docs.example.org", False),
        ("https://", False),
        ("https://docs.example.org:x", False),
        ("https://docs.example.org\\@evil", False),
        ("https://docs.example.org/\u202e", False),
        ("https://docs example.org", False),
        ("//docs.example.org", False),
        ("data:text/html,x", False),
        ("", False),
    ],
)
def test_documentation_is_linked_over_https_alone(url, shown):
    offer = dataclasses.replace(door_pages.DATABASES, docs_url=url)
    outline = Outline(views.html(views.OfferView(offer=offer, claims=(), csrf="", action="/x")))
    links = [one for one in outline.all("a") if one["href"].startswith("http")]
    wanted = [{"href": url, "rel": "noopener noreferrer"}] if shown else []
    assert links == wanted
    assert [one for one in outline.all("a") if one["href"] == url] == wanted


@pytest.mark.parametrize("page", ["offer", "consent"])
def test_nothing_is_preselected(page):
    boxes = [one for one in Outline(_PAGES[page]).all("input") if one.get("name") == "claim"]
    assert [one["value"] for one in boxes] == ["0", "1"]
    assert not [one for one in boxes if "checked" in one]
    assert ["required" in one for one in boxes] == [False, True]


def test_what_was_chosen_stays_so_beside_a_problem():
    outline = Outline(_PAGES["consent-problem"])
    boxes = [one for one in outline.all("input") if one.get("name") == "claim"]
    assert ["checked" in one for one in boxes] == [True, False]
    assert [one for one in outline.all("div") if one.get("role") == "alert"]


@pytest.mark.parametrize(
    "href", ['/bind?s="><script>', "/bind?s=a b", "javascript:x", "//evil/?a&b", "/bind?s=<b>"]
)
def test_a_link_that_is_not_plain_is_escaped(href):
    assert templates.bare(href) == escape(href)


def test_without_a_session_there_is_no_card_but_how_to_sign_in():
    outline = Outline(_PAGES["resources-out"])
    assert outline.words().count("Run the command") == 1
    assert not [one for one in outline.all("a") if "btn" in one.get("class", "")]


def test_a_status_is_a_word_and_a_shape():
    html = _PAGES["bindings"]
    for word, shape in (
        ("Ready", "<circle cx"),
        ("Waiting for the konnector", '<circle class="ring"'),
        ("Not ready", '<path d="M6'),
        ("No heartbeat", '<path d="M1'),
    ):
        assert re.search(f"{re.escape(shape)}[^\n]*</svg><bdi>{word}</bdi>", html)


def test_a_cluster_with_many_services_shows_four():
    services = tuple(f"kind-{number}.shop.example" for number in range(8))
    row = dataclasses.replace(door_pages.ROWS[0], services=services)
    words = Outline(views.html(views.BindingsView((row,)))).words()
    assert "kind-3.shop.example" in words
    assert "kind-4.shop.example" not in words
    assert "and 4 more" in words


def test_a_dry_run_promises_no_binding():
    html = _PAGES["consent-dry"]
    assert "nothing is bound" in Outline(html).words()
    assert "gets access" not in html
    assert "gets access" in _PAGES["consent"]


def test_a_card_says_what_it_is_and_asks_for_before_anybody_clicks():
    words = Outline(_PAGES["resources"]).words()
    for one in ("A database of your own", "Put Secrets into your", "Read ConfigMaps in your"):
        assert one in words
    assert "Kind" not in words


def test_a_claim_says_all_that_is_agreed_to_and_what_comes_of_a_no():
    words = Outline(_PAGES["consent"]).words()
    for one in (
        "Put Secrets into your namespaces Optional",
        "Which all names",
        "Where in all namespaces but the cluster's own",
        "If you delete one it comes back",
        "Without it credentials of the service do not arrive in your cluster",
        "Without it the service is not bound",
    ):
        assert one in words
    assert words.count("Optional") == words.count("Required") == 1


def test_a_cluster_has_the_name_that_its_command_gave_it_beside_its_id():
    words = Outline(_PAGES["bindings"]).words()
    assert "prod-eu 4ceiSrw8 cluster-4ceiSrw8" in words
    assert "9bbk2Lx1 cluster-9bbk2Lx1" in words
    assert "4ceiSrw8 which your command calls prod-eu" in Outline(_PAGES["consent"]).words()


def test_a_column_in_which_all_are_equal_is_not_there():
    assert "May I bind it?" in _PAGES["catalogue"]
    assert "May I bind it?" not in _PAGES["catalogue-equal"]
    assert ">Scope<" not in _PAGES["catalogue"]


def test_without_pages_for_people_nothing_leads_to_them():
    assert "/ui/" not in _PAGES["error-bare"]
    assert "/assets/" not in _PAGES["error-bare"]


def test_a_name_that_a_view_lacks_is_an_error():
    with pytest.raises(UndefinedError):
        views._ENVIRONMENT.get_template("consent.html").render(
            view=views.HomeView("door"), frame=door_pages.FRAME
        )


@pytest.mark.parametrize(
    ("target", "sources"),
    [
        ("", "'self'"),
        ("http://localhost:40123/callback", "'self' http://localhost:40123"),
        ("http://127.0.0.1:1/x?y=z", "'self' http://127.0.0.1:1"),
        ("http://[::1]:40123/callback", "'self' http://*:40123"),
        ("https://ci.example.org/back", "'self' https://ci.example.org"),
    ],
)
def test_forms_lead_to_this_site_and_to_the_one_that_asked(target, sources):
    assert dict(views.security_headers(target))["Content-Security-Policy"] == (
        "default-src 'none'; style-src 'self'; img-src 'self'; "
        f"form-action {sources}; base-uri 'none'; frame-ancestors 'none'"
    )


@pytest.mark.parametrize(
    "target", ["http://a b/", "http://a;script-src *", "javascript:x", "http://'self'", "x"]
)
def test_a_target_cannot_widen_the_policy(target):
    with pytest.raises(ValueError, match="no place in a policy"):
        views.security_headers(target)


def test_the_headers_of_a_page():
    plain = dict(views.security_headers())
    del plain["Content-Security-Policy"]
    assert plain == {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    safe = dict(views.security_headers(forms=True, secure=True))
    assert "Strict-Transport-Security" in safe
    assert safe["Referrer-Policy"] == "same-origin"  # the browser names its origin to this site
