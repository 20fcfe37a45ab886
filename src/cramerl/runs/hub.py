"""Exports in repositories of the Hugging Face Hub: ``hf://USER/NAME``, or ``hf://USER/NAME@REVISION``.

What is downloaded is a folder from somebody else, and is read like one. The hub's own cache consists of links, which
such folders must not hold, so the files go to its cache of assets, as files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cramerl._extras import load_library
from cramerl.runs.folder import CONFIG, EXPORTED_WEIGHTS

SCHEME = "hf://"
_CARD = "README.md"
_MOST_BYTES = 4 << 30
_SECONDS = 30
_ADDRESS = re.compile(r"hf://(?P<user>\w[\w.-]*)/(?P<name>\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Address(NamedTuple):
    """A repository of models, and the branch, tag or commit that is meant; None for the newest."""

    user: str
    name: str
    revision: str | None = None

    @property
    def repository(self) -> str:
        """What the hub calls it."""
        return f"{self.user}/{self.name}"

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}{f'@{self.revision}' if self.revision else ''}"


def is_address(run: Any) -> bool:
    """Whether something is written like an address."""
    return isinstance(run, str) and run.startswith(SCHEME)


def parse_address(text: str) -> Address:
    """The parts of an address; ValueError if it is none."""
    match = _ADDRESS.fullmatch(text)
    if match is None or ".." in text:
        raise ValueError(f"run must be {SCHEME}USER/NAME or {SCHEME}USER/NAME@REVISION, got {text!r}")
    return Address(**match.groupdict())


def parse_push(text: str) -> Address:
    """The repository to write to; its address may come without the scheme."""
    try:
        found = parse_address(text if is_address(text) else f"{SCHEME}{text}")
    except ValueError:
        found = None
    if found is None or found.revision:
        raise ValueError(f"push must be USER/NAME, a repository of the hub, got {text!r}")
    return found


def download(text: str) -> Path:
    """The folder of a repository's export, downloaded unless this commit is there already."""
    address = parse_address(text)
    library = load_library("huggingface_hub")
    if _COMMIT.fullmatch(address.revision or ""):
        place = _place(library, address, str(address.revision))
        if all((place / name).is_file() for name in (CONFIG, EXPORTED_WEIGHTS)):
            return place
    with _in_sentences(address):
        found = library.HfApi().model_info(
            address.repository, revision=address.revision, files_metadata=True, timeout=_SECONDS
        )
    sizes = {file.rfilename: file.size or 0 for file in found.siblings or []}
    for name in (CONFIG, EXPORTED_WEIGHTS):
        if name not in sizes:
            raise ValueError(f"{address} is not an export of cramerl: it has no {name}")
    names = [name for name in (CONFIG, EXPORTED_WEIGHTS, _CARD) if name in sizes]
    if sum(sizes[name] for name in names) > _MOST_BYTES:
        raise ValueError(f"{address} must have at most {_MOST_BYTES:,} bytes, {EXPORTED_WEIGHTS} is larger")
    if not _COMMIT.fullmatch(found.sha or ""):
        raise ValueError(f"{address} cannot be used: the hub named no commit")
    place = _place(library, address, str(found.sha))
    with _in_sentences(address), _quiet():
        for name in names:
            library.hf_hub_download(address.repository, name, revision=found.sha, local_dir=place)
    return place


def require_token(address: Address) -> None:
    """Raise ValueError, before anything is written, if there is no token or the hub refuses it."""
    library = load_library("huggingface_hub")
    if library.get_token() is None:
        raise ValueError(f"push needs a token of the hub to write {address}: hf auth login, or the variable HF_TOKEN")
    with _in_sentences(address):
        library.HfApi().whoami()


def upload(folder: Path, address: Address) -> None:
    """Write the files of an export to a repository, which is made if there is none."""
    library = load_library("huggingface_hub")
    with _in_sentences(address, f"the export is in {folder}"), _quiet():
        api = library.HfApi()
        api.create_repo(address.repository, exist_ok=True)
        files = [library.CommitOperationAdd(name, str(folder / name)) for name in (CONFIG, EXPORTED_WEIGHTS, _CARD)]
        api.create_commit(address.repository, files, commit_message="cramerl export")


def _place(library: Any, address: Address, commit: str) -> Path:
    """Where the files of a commit go. The folder has the repository's name, which pages show."""
    place = library.cached_assets_path("cramerl", namespace=f"{address.user}--{commit}", subfolder=address.name)
    return Path(place)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars where nobody watches."""
    switch = load_library("huggingface_hub.utils")
    if (sys.stderr is not None and sys.stderr.isatty()) or switch.are_progress_bars_disabled():
        yield
        return
    switch.disable_progress_bars()
    try:
        yield
    finally:
        switch.enable_progress_bars()


@contextmanager
def _in_sentences(address: Address, after: str = "") -> Iterator[None]:
    """Turn the errors of the hub and of the network into sentences."""
    errors = load_library("huggingface_hub.errors")
    try:
        yield
    except (OSError, ValueError, errors.HTTPError) as error:
        text = f"{address} {_reason(errors, error)}"
        raise ValueError(f"{text}; {after}" if after else text) from error


def _reason(errors: Any, error: Exception) -> str:
    """What the hub or the network says, after the address."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return "is gated: its owner must let you in, and the hub must know you (hf auth login)"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "is not on the hub, or it is private and your token cannot read it (hf auth login)"
    if isinstance(error, errors.RevisionNotFoundError):
        return "has no such revision"
    if isinstance(error, errors.HfHubHTTPError) and status in (401, 403):
        return (
            f"is refused by the hub, with status {status}: its token is wrong or has no right to this (hf auth login)"
        )
    if isinstance(error, errors.HfHubHTTPError):
        said = " ".join(str(getattr(error, "server_message", None) or error).split())
        return f"cannot be used, the hub answered with status {status}: {said[:300]}"
    words = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, (errors.HTTPError, ConnectionError, TimeoutError)):
        return f"cannot be reached, there is no connection to the hub: {words}"
    return f"cannot be used: {words}"
