# SPDX-License-Identifier: Apache-2.0
"""The repository's pages as a site (hook of mkdocs.yml): each page stands at its own path, so its links hold in both.

Pages are README.md, those of docs/ and the READMEs of recipes and data, and the few at the root; files that a page
links or shows come along. A link to a folder leads to its README, and one to a folder without becomes its name.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
GLOBS = ("README.md", "C*.md", "SECURITY.md", "docs/*.md", "docs/*/*.md", "recipes/*/README.md", "[a-z]*/README.md")
LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?!https?:)([^)#\s]+)((?:#[^)]*)?)\)")
TARGET = re.compile(r"\]\((?!https?:)([^)#\s]+)")
OPENING = re.compile(r"^```(\w+) (\S+)$", re.M)
FENCED = re.compile(r"(^```.*?^```)", re.M | re.S)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Say the version."""
    version = re.search(r'__version__ = "(.*)"', (ROOT / "verl_kernel" / "__init__.py").read_text())
    assert version
    config.site_name = f"verl-kernel {version[1]}"
    config.copyright = f"verl-kernel {version[1]}, Apache-2.0. Times on these pages are simulated where they say so."
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take all pages from the repository, and what they link to."""
    paths = sorted({path for glob in GLOBS for path in ROOT.glob(glob)})
    linked = {
        (page.parent / target).resolve()
        for page in paths
        for target in TARGET.findall(FENCED.sub("", page.read_text()))
    }
    theirs = [file for file in files if file.src_uri.startswith("assets/")]  # of the theme's plugins
    ours = sorted({*paths, *(path for path in linked if path.is_file() and path.is_relative_to(ROOT))})
    names = [path.relative_to(ROOT).as_posix() for path in ours]
    return Files([*theirs, *(File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in names)])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to folders to their READMEs, or leave their names; name the files that blocks are saved as."""
    folder = posixpath.dirname(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if not (ROOT / path).is_dir():
            return link[0]
        return f"[{text}]({target.rstrip('/')}/README.md{anchor})" if (ROOT / path / "README.md").exists() else text

    def opened(fence: re.Match[str]) -> str:
        """The second word is the file that a reader saves, or says how the block is tested."""
        language, name = fence.groups()
        return f'```{language} title="{name}"' if "." in name else f"```{language}"

    parts = FENCED.split(OPENING.sub(opened, markdown))
    return "".join(part if part.startswith("```") else LINK.sub(rewritten, part) for part in parts)
