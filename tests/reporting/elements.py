# SPDX-License-Identifier: Apache-2.0
"""A page as a browser reads it."""

from html.parser import HTMLParser

OWN = {"style", "script"}


class Elements(HTMLParser):
    """Elements with their attributes, the text that is shown, and the raw text of styles and scripts."""

    def __init__(self, page):
        super().__init__()
        self.found, self.text, self.raw, self._within = [], "", [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._within = tag

    def handle_endtag(self, tag):
        self._within = ""

    def handle_data(self, data):
        if self._within in OWN:
            self.raw.append((self._within, self.found[-1][1], data))
        else:
            self.text += data
