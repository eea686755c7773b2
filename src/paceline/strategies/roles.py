"""Who is who in a run with parameter servers: chief, workers, servers. Pure; no torch.

A process has a rank and one or more roles: "worker", "server", "chief+server". The chief is rank 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.errors import UserError
from paceline.settings import Recipe
from paceline.units import count_of

CHIEF, WORKER, SERVER = "chief", "worker", "server"
_WORDS = {CHIEF: CHIEF, "master": CHIEF, WORKER: WORKER, SERVER: SERVER, "ps": SERVER}
"""With what TensorFlow's cluster descriptions call them."""
_ORDER = (CHIEF, WORKER, SERVER)
WIRE_TYPES = {"plain": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""In what gradients and weights travel, by the setting `reduce`."""
_FORM = "write --roles chief=1,worker=3,server=2 (chief+server=1 is one process that is both)"


@dataclass(frozen=True)
class Roles:
    by_rank: tuple[str, ...]
    chief_trains: bool = True

    def has(self, rank: int, role: str) -> bool:
        return role in self.by_rank[rank].split("+")

    def of(self, rank: int) -> list[str]:
        return self.by_rank[rank].split("+")

    def ranks_of(self, role: str) -> list[int]:
        return [rank for rank in range(len(self.by_rank)) if self.has(rank, role)]

    def trains(self, rank: int) -> bool:
        is_training_chief = self.chief_trains and self.has(rank, CHIEF)
        return self.has(rank, WORKER) or is_training_chief

    @property
    def size(self) -> int:
        return len(self.by_rank)

    @property
    def trainers(self) -> list[int]:
        """Ranks that compute gradients."""
        return [rank for rank in range(self.size) if self.trains(rank)]

    @property
    def servers(self) -> list[int]:
        return self.ranks_of(SERVER)

    def is_replaceable(self, rank: int) -> bool:
        """Whether a run that survives lost workers survives the loss of this one."""
        return self.by_rank[rank] == WORKER

    def name_of(self, rank: int) -> str:
        """As people say it: 'chief', 'worker 0', 'server 1'."""
        names = []
        for role in self.of(rank):
            number = "" if role == CHIEF else f" {self.ranks_of(role).index(rank)}"
            names.append(f"{role}{number}")
        return " and ".join(names)

    def in_words(self) -> str:
        counts = [(role, self.by_rank.count(role)) for role in dict.fromkeys(self.by_rank)]
        return ", ".join(f"{role}={number}" for role, number in counts)


def parse_roles(text: str) -> tuple[str, ...]:
    """'chief=1,worker=3,server=2' as roles of processes, the chief first."""
    placed = parse_placed(text)
    for member, host in placed:
        if host:
            raise UserError(
                f"'{member}@{host}' is for a run on hosts", "add --hosts FILE, or leave @HOST out"
            )
    return tuple(member for member, _ in placed)


def parse_placed(text: str) -> list[tuple[str, str]]:
    """The same with the host of each, where it is named: 'chief@a,worker@b=2,server'."""
    found: list[tuple[str, str]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = part.partition("=")
        if equals and not number.strip().isdecimal():
            raise UserError(f"--roles has '{part}', which is no number of processes", _FORM)
        role, _, host = name.partition("@")
        found += [(_known(role), host.strip())] * (int(number) if equals else 1)
    return sorted(found, key=lambda pair: _rank_of(pair[0]))


def _rank_of(member: str) -> int:
    return _ORDER.index(member.split("+", maxsplit=1)[0])


def _known(text: str) -> str:
    words = [word.strip().lower() for word in text.split("+")]
    unknown = [word for word in words if word not in _WORDS]
    if unknown:
        raise UserError(
            f"there is no role '{unknown[0]}'", f"the roles are chief, worker and server; {_FORM}"
        )
    mine = {_WORDS[word] for word in words}
    return "+".join(role for role in _ORDER if role in mine)


def in_rank_order(members: Iterable[str]) -> tuple[str, ...]:
    """Chief first, then workers, then servers."""
    return tuple(sorted(members, key=_rank_of))


def default_members(num_trainers: int, chief_trains: bool) -> tuple[str, ...]:
    """So many processes that compute gradients, and one server."""
    num_workers = num_trainers - 1 if chief_trains else num_trainers
    return (CHIEF, *[WORKER] * num_workers, SERVER)


def make_roles(recipe: Recipe, members: Sequence[str], is_short: bool = False) -> Roles:
    """Who is who, or why these do not make a run. `is_short`: some are missing, because their host
    is lost; what cannot be shared evenly by the others is then no reason to end the run."""
    roles = Roles(tuple(members), recipe.strategy.chief_trains)
    num_chiefs = len(roles.ranks_of(CHIEF))
    if num_chiefs != 1:
        raise UserError(f"a run has 1 chief, and the roles name {num_chiefs}", _FORM)
    if not roles.servers:
        raise UserError(
            f"the roles name no server ({roles.in_words()}), and somebody must hold the weights",
            "add server=1, or let another process be one as well: chief+server=1",
        )
    if not roles.trainers:
        raise UserError(
            "nobody would train: there is no worker, and strategy.chief_trains is false",
            "add worker=1, or leave strategy.chief_trains out",
        )
    _refuse_reduction(recipe)
    _refuse_batch(recipe, len(roles.trainers))
    if not is_short:
        _refuse_uneven_backup(recipe, len(roles.trainers))
    return roles


def _refuse_reduction(recipe: Recipe) -> None:
    if recipe.reduce.kind not in WIRE_TYPES:
        raise UserError(
            f"reduce={recipe.reduce.kind} is a way of all-reduce; to servers and back all goes as "
            "it is, or in 16 bits",
            f"set reduce to one of: {', '.join(WIRE_TYPES)}; or strategy=all-reduce",
        )


def _refuse_batch(recipe: Recipe, num_trainers: int) -> None:
    """In sync mode trainers share the batch of a step; elsewhere each has one of its own."""
    strategy, batch = recipe.strategy, recipe.batch
    if strategy.mode != "sync":
        return
    if strategy.backup >= num_trainers:
        raise UserError(
            f"strategy.backup is {strategy.backup}, and only {num_trainers} processes train: a "
            "step would wait for nobody",
            f"lower strategy.backup to at most {num_trainers - 1}, or add workers",
        )
    num_shares = num_trainers - strategy.backup
    if batch.per_device:
        whole = batch.per_device * num_shares
        raise UserError(
            f"in sync mode all workers share one global batch, and batch.per_device="
            f"{batch.per_device} would make it depend on how many there are",
            f"set batch.global={whole} batch.per_device=null batch.micro={batch.micro_size} (what "
            f"{count_of(num_shares, 'worker')} would have), or strategy.mode=async",
        )
    num_micro = recipe.num_micro_batches(1)
    if num_micro < num_shares:
        raise UserError(
            f"a step has {count_of(num_micro, 'micro-batch')}, too few for {num_shares} workers "
            "that share it",
            "lower batch.micro, raise batch.global, or start fewer workers",
        )


def _refuse_uneven_backup(recipe: Recipe, num_trainers: int) -> None:
    """With backup workers nobody knows beforehand whose gradients make a step; so they must be of
    one size for the step to have the batch that was asked for."""
    strategy, batch = recipe.strategy, recipe.batch
    num_micro, num_shares = recipe.num_micro_batches(1), num_trainers - strategy.backup
    if not strategy.backup or num_micro % num_shares == 0:
        return
    least = num_shares * batch.micro_size
    sizes = {
        max(1, times) * least for times in (batch.whole(1) // least, batch.whole(1) // least + 1)
    }
    raise UserError(
        f"with strategy.backup={strategy.backup} the gradients of {num_shares} workers make a "
        f"step, and its {num_micro} micro-batches cannot be shared evenly by them",
        f"set batch.global to a multiple of {least}, e.g. "
        f"{' or '.join(str(size) for size in sorted(sizes))}; or change the number of workers",
    )
