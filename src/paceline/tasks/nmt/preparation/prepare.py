"""Parallel text prepared for translation: what is asked for, where it comes from, where it goes.

The steps in between are `nmt_steps`; the files that come of it are read with `open_split`.

Everything happens in a directory beside the one asked for, which takes its name only when all is
there. So a preparation that was interrupted, however, goes on where it was, and ends with the same
bytes as one that was not.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from paceline.data.card import CARD_NAME, describe_file, read_card
from paceline.data.fetch import fetch
from paceline.data.places import data_directory, data_home, stand_in_name, writing_to
from paceline.data.prepared import directory_beside, is_done, put_in_place, refuse_foreign
from paceline.data.progress import Say
from paceline.errors import UserError
from paceline.files import expand_home, sha256_of
from paceline.tasks.nmt.preparation import sources as nmt_sources
from paceline.tasks.nmt.preparation.sources import Languages, Material
from paceline.tasks.nmt.preparation.steps import Origin, Work, fill
from paceline.tasks.nmt.preparation.text import Limits
from paceline.tasks.nmt.standin import corpus as nmt_stand_in
from paceline.tasks.nmt.store import SPLITS, WORKLOAD, Pairs, file_names, open_split
from paceline.tasks.nmt.vocabulary import Vocabulary
from paceline.units import format_bytes

__all__ = ["Options", "Pairs", "default_directory", "open_split", "prepare"]

_FORMAT: Final = 1


@dataclass(frozen=True)
class Options:
    """What can be asked for; None leaves a choice to the source, `num_pairs` is the stand-in's."""

    source_language: str = "en"
    target_language: str = "de"
    vocab_size: int | None = None
    spm: Path | None = None
    num_pairs: int = 60_000
    test_set: str | None = None
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    num_workers: int | None = None

    @property
    def languages(self) -> Languages:
        return Languages(self.source_language, self.target_language)


def default_directory(source: str) -> Path:
    """Where `paceline data nmt` puts it when nothing else is said."""
    if source == "web":
        return data_directory("nmt")
    if source == "stand-in":
        return data_directory(stand_in_name(WORKLOAD))
    return data_directory(f"nmt-{expand_home(source).resolve().name}")


def prepare(source: str, to: Path, options: Options, say: Say) -> Path:
    """Text from `web`, `stand-in` or a path as tokens in directory `to`, ready for training."""
    to = expand_home(to).resolve()
    _check(options)
    refuse_foreign(to, WORKLOAD, {name for split in SPLITS for name in file_names(split)})
    origin = _find_origin(source, options, say)
    key = _key(origin, options)
    if is_done(to, key, _summary, say):
        return to
    with writing_to(to.parent), directory_beside(to, key, say) as directory:
        work = Work(
            directory,
            options.languages,
            options.spm or options.vocab_size,
            options.limits,
            options.seed,
            options.num_workers,
            say,
        )
        if not (work.new / CARD_NAME).is_file():
            fill(work, origin, key)
        put_in_place(work.new, to)
    say(_summary(to))
    return to


def _check(options: Options) -> None:
    nmt_sources.check_languages(options.languages)
    if options.num_pairs < 100:
        raise UserError(f"{options.num_pairs} pairs are too few", "ask for 100 or more: --pairs")
    if options.num_workers is not None and options.num_workers < 1:
        raise UserError(f"{options.num_workers} workers cannot work", "ask for one or more")
    if options.spm is not None:
        if options.vocab_size is not None:
            raise UserError(
                "--vocab and --spm exclude each other: a model has the size that it has",
                "leave one of them out",
            )
        Vocabulary.load(options.spm)


# ----------------------------------------------------------------- where it comes from


def _find_origin(source: str, options: Options, say: Say) -> Origin:
    if source == "web":
        return _from_web(options, say)
    if source == "stand-in":
        return _from_stand_in(options)
    return _from_path(expand_home(source), options, say)


def _from_web(options: Options, say: Say) -> Origin:
    downloads = data_home() / "downloads"
    archives = tuple(fetch(archive, downloads, say) for archive in nmt_sources.ARCHIVES)
    files = tuple(
        {"name": path.name, "bytes": path.stat().st_size, "sha256": archive.checksum.split(":")[1]}
        for path, archive in zip(archives, nmt_sources.ARCHIVES, strict=True)
    )
    location = ", ".join(archive.mirrors[0] for archive in nmt_sources.ARCHIVES)
    identity = {archive.file_name: archive.checksum for archive in nmt_sources.ARCHIVES}
    material = Material(archives, (), options.test_set)
    return Origin("web", location, identity, material, files, True)


def _from_stand_in(options: Options) -> Origin:
    if {options.source_language, options.target_language} != set(nmt_stand_in.LANGUAGES):
        raise UserError(
            f"the stand-in has no {options.languages}: it is composed in English and German",
            "use --source en --target de, or the other way round",
        )
    if options.test_set is not None:
        raise UserError("the stand-in has its own test set", "leave out --test")
    identity = nmt_stand_in.description(options.num_pairs, options.seed)
    return Origin("stand-in", "composed here", identity, Material((), (), None))


def _from_path(path: Path, options: Options, say: Say) -> Origin:
    material = nmt_sources.find_material(path, options.languages, options.test_set)
    files = tuple(describe_file(file) for file in material.files())
    found = {f"sha256:{file['sha256']}" for file in files}
    is_official = all(archive.checksum in found for archive in nmt_sources.ARCHIVES)
    for archive in nmt_sources.ARCHIVES if material.archives else ():
        if not (path / archive.file_name).is_file():
            say(f"{archive.file_name} is not in {path}: going on without it")
        elif archive.checksum not in found:
            say(f"{path / archive.file_name} is not the official one: using it as it is")
    if material.archives and list(path.glob("train.*")):
        say(f"the archives in {path} are used, and not train.* beside them")
    identity = {file["name"]: file["sha256"] for file in files}
    return Origin("path", str(path.absolute()), identity, material, files, is_official)


def _key(origin: Origin, options: Options) -> str:
    """One string for everything that decides about the bytes in the end."""
    asked: dict[str, Any] = asdict(options)
    del asked["num_workers"], asked["num_pairs"]
    asked["spm"] = sha256_of(options.spm) if options.spm else None
    decides = {"format": _FORMAT, "kind": origin.kind, "text": origin.identity, "asked": asked}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------ where it goes


def _summary(to: Path) -> str:
    card = read_card(to, WORKLOAD)
    counts = ", ".join(f"{split['num_pairs']:,} {name}" for name, split in card["splits"].items())
    num_dropped = sum(card["dropped"].values())
    return (
        f"{to} holds {counts} pairs {card['languages']}, {num_dropped:,} dropped, "
        f"{card['vocabulary']['size']:,} pieces, {format_bytes(card['total_mb'] * 1e6)} "
        f"(fingerprint {card['fingerprint']})"
    )
