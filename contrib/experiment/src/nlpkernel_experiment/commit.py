"""The git commit of a folder, read from git's files: no process is started for it."""

from __future__ import annotations

from pathlib import Path


def commit_of(folder: Path) -> str | None:
    """The commit that the repository around `folder` stands at; None where there is no repository, or no commit."""
    for each in (folder, *folder.parents):
        found = each / ".git"
        if found.exists():
            try:
                return _head(found)
            except (OSError, UnicodeDecodeError):
                return None
    return None


def _head(git: Path) -> str | None:
    if git.is_file():
        # A work tree or a submodule: "gitdir: PATH".
        git = (git.parent / git.read_text(encoding="utf-8").partition(":")[2].strip()).resolve()
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head or None
    name = head.partition(":")[2].strip()
    common = git / "commondir"
    shared = (git / common.read_text(encoding="utf-8").strip()).resolve() if common.is_file() else git
    for place in (git, shared):
        if (place / name).is_file():
            return (place / name).read_text(encoding="utf-8").strip() or None
    packed = shared / "packed-refs"
    if packed.is_file():
        for line in packed.read_text(encoding="utf-8").splitlines():
            value, _, ref = line.partition(" ")
            if ref == name:
                return value
    return None
