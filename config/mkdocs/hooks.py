"""What MkDocs lacks for docs/ as a Git server shows it."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent.parent
SHELVES = ("Start", "Operate", "Reference", "How it works")
OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")


def title(page):
    heading = re.search(r"^# (.+)$", page.read_text(), re.M)
    return heading[1] if heading else page.name


def on_config(config):
    """The shelves of docs/README.md are the navigation."""
    docs = Path(config.docs_dir)
    navigation = [{"Documentation": "README.md"}]
    for section in re.split(r"^## ", (docs / "README.md").read_text(), flags=re.M)[1:]:
        shelf, _, text = section.partition("\n")
        if shelf not in SHELVES:
            continue
        pages = re.findall(r"^\| \[[^\]]*\]\(([^)]+)\)", text, re.M)
        entries = [{title(docs / page): page} for page in pages if page.endswith(".md")]
        if shelf == "How it works":
            records = sorted(page for page in (docs / "decisions").glob("*.md") if page.name != "README.md")
            entries.append({"Records": [{title(page): f"decisions/{page.name}"} for page in records]})
        navigation.append({shelf: entries})
    config.nav = navigation
    return config


def outside(source, ups, path):
    """The file of the repository to which a page of `docs` links, if it is not in `docs`."""
    target = (source.parent / ups / path).resolve()
    return target if target.is_relative_to(ROOT) and not target.is_relative_to(ROOT / "docs") else None


def on_files(files, config):
    """Files outside of docs to which pages link become part of the site, as plain text."""
    for page in list(files.documentation_pages()):
        source = Path(page.abs_src_path)
        for _, ups, path, _ in OUTSIDE.findall(source.read_text()):
            target = outside(source, ups, path)
            if target and target.is_file():
                name = f"repository/{target.relative_to(ROOT)}.txt"
                if not files.get_file_from_path(name):
                    files.append(File.generated(config, name, content=target.read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    source = Path(page.file.abs_src_path)

    def link(found):
        target = outside(source, found[2], found[3])
        if target is None:
            return found[0]
        if target.is_file():
            up = "../" * page.file.src_uri.count("/")
            return f"[{found[1]}]({up}repository/{target.relative_to(ROOT)}.txt)"
        return f"{found[1]} (`{target.relative_to(ROOT)}`)" if target.name not in found[1] else f"`{found[1].strip('`')}`"

    markdown = OUTSIDE.sub(link, markdown)
    lines, fenced, previous = [], False, ""
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
            # Words after the language are for the tests.
            line = "```" + line[3:].split(" ")[0]
        elif not fenced:
            # Python-Markdown wants four spaces where a Git server takes two or three, and a blank line before a list.
            spaces = len(line) - len(line.lstrip())
            if line.strip() and 2 <= spaces < 4:
                line = "    " + line.lstrip()
            if re.match(r"([-*]|\d+\.) ", line) and previous.strip() and not re.match(r"\s|([-*]|\d+\.) ", previous):
                lines.append("")
        lines.append(line)
        previous = line
    return "\n".join(lines)
