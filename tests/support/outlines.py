"""What a page is made of, and texts of others that would be more than text."""

import itertools
import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "br"}
MARKUP = '"><script>alert(1)</script><b class=x onclick="alert(1)">\'{{ 7 * 7 }}'
RTL = "safe\u202egpj.exe\u2066\u2069\u200f \u05d0\u05d1"
LONG = "long " * 2_048


class Outline(HTMLParser):
    """The elements of a page; refuses what is not closed, or closed twice."""

    def __init__(self, text):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), tag
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def check_order(self):
        """Refuse two headings of the first level, a level that is left out, an id used twice."""
        levels = [int(tag[1]) for tag, _ in self.elements if re.fullmatch("h[1-6]", tag)]
        assert levels.count(1) == 1
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
        assert self.all("html") == [{"lang": "en"}]
        identifiers = [one["id"] for _, one in self.elements if "id" in one]
        assert len(identifiers) == len(set(identifiers))

    def words(self):
        return " ".join("".join(self.text).split())
