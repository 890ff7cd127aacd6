"""Who plays: the sessions a run begins with, and what may be done to which."""

from dataclasses import dataclass

STEADY, WILD, MORTAL, MEEK = "steady", "wild", "mortal", "meek"
"""Nothing is ever taken back in a steady session; a wild one is rolled back, rewound and cleared; a mortal one is
deleted and made again. A meek one is hardly talked to but to be overruled."""

_PROGRAMS = ("agent", "talker", "clerk", "chief", "notes")
_NATURES = (STEADY, STEADY, WILD, MORTAL)


@dataclass(frozen=True, slots=True)
class Role:
    """A session of the cast."""

    session: str
    program: str
    nature: str


CAST = (
    *(Role(f"{nature}-{program}-{n}", program, nature) for n, nature in enumerate(_NATURES) for program in _PROGRAMS),
    Role("steady-agent-9", "agent", STEADY),
    Role("mortal-agent-9", "agent", MORTAL),
    *(Role(f"meek-{program}-{n}", program, MEEK) for n in range(2) for program in ("agent", "talker")),
)

BY_SESSION = {role.session: role for role in CAST}
