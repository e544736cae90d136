"""Turns a seed into one story: picks a cast and a plot and fills the sentences."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from . import names, phrases, world
from .plot_types import Plot
from .plots_care import PLOTS as CARE
from .plots_growth import PLOTS as GROWTH
from .plots_people import PLOTS as PEOPLE
from .plots_seasons import PLOTS as SEASONS
from .plots_things import PLOTS as THINGS

ALL_PLOTS: tuple[Plot, ...] = THINGS + PEOPLE + GROWTH + SEASONS + CARE

# Plots whose events need a season; a situation's own "season" field comes first.
PLOT_SEASONS: dict[str, tuple[str, ...]] = {
    "harvest": ("spring",),
    "storm": ("spring", "summer", "autumn"),
    "journey": ("spring", "summer", "autumn"),
}

# Traits that a plot's events would contradict.
TRAIT_CONFLICTS: dict[str, tuple[str, ...]] = {
    "fear": ("brave",), "truth": ("honest",), "winter": ("generous", "kind"), "craft": ("patient",),
    "neighbor": ("kind",), "quarrel": ("patient", "gentle"), "promise": ("careless",),
}

# Things that can crack, dent or be polished; plots of breaking need one of them.
HARD_THINGS = frozenset(
    "lantern kettle fiddle teapot drum flute bowl cup sled candlestick harp lamp spoon mirror".split()
    + ["music box", "toy boat", "spinning top", "walking stick", "honey jar", "pie dish"])
HARD_PLOTS = frozenset(("mended", "truth", "wish"))

PRONOUNS: dict[str, tuple[str, str, str, str]] = {
    "he": ("he", "him", "his", "himself"),
    "she": ("she", "her", "her", "herself"),
}


@dataclass
class Story:
    """A finished story together with everything a question may ask about."""

    text: str
    short: str
    refs: dict[str, str]
    plot: Plot
    situation: dict[str, str]
    mood: str
    lesson: str
    title: str


def with_article(phrase: str) -> str:
    """"old owl" -> "an old owl". "honest" is the one word of the lists that breaks the vowel rule."""
    return ("an " if phrase[0].lower() in "aeiou" or phrase.startswith("honest") else "a ") + phrase


def capitalize(text: str) -> str:
    """Upper-cases the first letter, stepping over an opening quotation mark."""
    for index, char in enumerate(text):
        if char.isalpha():
            return text[:index] + char.upper() + text[index + 1:]
    return text


def fill(template: str, refs: dict[str, str]) -> str:
    """Fills until no field is left, because fields may hold fields themselves."""
    text = template
    for _ in range(6):
        if "{" not in text:
            break
        text = text.format_map(refs)
    return text


def pick_character(rng: random.Random, pronoun: str | None) -> dict[str, str]:
    """A character whose pronoun, where given, is the one asked for."""
    if rng.random() < 0.6:
        kind, hands = rng.choice(names.ANIMALS)
        gender = pronoun or rng.choice(("he", "she"))
    else:
        fitting = [p for p in names.PEOPLE if not pronoun or p[1] in ("", pronoun)]
        kind, fixed = rng.choice(fitting)
        gender, hands = fixed or pronoun or rng.choice(("he", "she")), "hands"
    pool = names.FEMALE_NAMES if gender == "she" else names.MALE_NAMES
    return {"kind": kind, "hands": hands, "gender": gender, "name": rng.choice(pool)}


def hero_refs(rng: random.Random, hero: dict[str, str], plot_key: str) -> dict[str, str]:
    """Fields for the main character."""
    he, him, his, himself = PRONOUNS[hero["gender"]]
    age = rng.choice(names.AGES)
    # Kinds that already tell an age must not get a second one.
    if hero["kind"] in ("grandmother", "grandfather", "lamb", "girl", "boy") and age in ("old", "young"):
        age = ""
    noun = f"{age} {hero['kind']}".strip()
    trait, habit = rng.choice([t for t in names.TRAITS if t[0] not in TRAIT_CONFLICTS.get(plot_key, ())])
    return {
        "H": hero["name"], "kind": hero["kind"], "hands": hero["hands"],
        "he": he, "him": him, "his": his, "himself": himself,
        "He": he.capitalize(), "His": his.capitalize(),
        "a_H": f"{with_article(noun)} named {hero['name']}",
        "trait": trait, "a_trait_noun": with_article(f"{trait} {hero['kind']}"), "habit": habit,
    }


def friend_refs(friend: dict[str, str]) -> dict[str, str]:
    """Fields for the second character, who always takes the other pronoun."""
    he, him, his, _ = PRONOUNS[friend["gender"]]
    a_f = f"{with_article(friend['kind'])} named {friend['name']}"
    return {
        "F": friend["name"], "fkind": friend["kind"], "a_F": a_f, "A_F": capitalize(a_f),
        "fhe": he, "fhim": him, "fhis": his, "Fhe": he.capitalize(), "Fhis": his.capitalize(),
    }


def setting_refs(rng: random.Random, seasons: tuple[str, ...]) -> dict[str, str]:
    """Fields for home, place, time and weather."""
    home_at, home = rng.choice(world.HOMES)
    times = [t for t in world.TIMES if not seasons or t[1] in seasons]
    time, season, weather = rng.choice(times)
    return {
        "home_at": home_at, "Home_at": capitalize(home_at), "home": home,
        "P": rng.choice(world.PLACES), "Time": time, "time": time[0].lower() + time[1:],
        "time_lower": time[0].lower() + time[1:], "season": season, "weather": weather,
        "food": rng.choice(world.FOODS),
    }


def thing_refs(rng: random.Random, hard_only: bool) -> dict[str, str]:
    """Fields for the object and for the people met on the way."""
    noun, adjectives, use = rng.choice([o for o in world.OBJECTS if not hard_only or o[0] in HARD_THINGS])
    full = f"{rng.choice(adjectives)} {noun}"
    elder, elder_pronoun = rng.choice(names.ELDERS)
    a_stranger, stranger = rng.choice(names.STRANGERS)
    he, him, his, _ = PRONOUNS[elder_pronoun]
    return {
        "o": noun, "ob": full, "a_ob": with_article(full), "use": use,
        "origin": rng.choice(world.ORIGINS),
        "E": f"the {elder}", "E_": f"The {elder}", "a_E": with_article(elder), "A_E": capitalize(with_article(elder)),
        "ehe": he, "ehim": him, "ehis": his,
        "a_S": a_stranger, "S": stranger, "S_cap": capitalize(stranger),
    }


def line_refs(rng: random.Random) -> dict[str, str]:
    """Spoken lines. Ends are kept as written; a tag after a full stop takes a comma."""
    return {
        "worry": rng.choice(phrases.WORRY), "hope": rng.choice(phrases.HOPE),
        "kind_line": rng.choice(phrases.KIND), "thanks": rng.choice(phrases.THANKS),
    }


def tidy(sentence: str) -> str:
    """Puts the comma before a speech tag and a capital at the start."""
    tags = r"(?:said|asked|cried|called|whispered|thought|murmured|admitted|[A-Z][a-z]+ (?:said|liked)|(?:he|she) (?:said|asked|cried|called|murmured))"
    sentence = re.sub(rf"\.\" (?={tags}\b)", ',\" ', sentence)
    return capitalize(re.sub(r"\s+", " ", sentence).strip())


def paragraphs(rng: random.Random, sentences: list[str]) -> str:
    """Joins sentences into two to four paragraphs, one line each."""
    sentences = [s for s in sentences if s]
    count = rng.choice((2, 3, 3, 4))
    size = len(sentences) / count
    breaks = [round(size * i) + rng.choice((-1, 0, 0, 1)) for i in range(1, count)]
    ends = breaks + [len(sentences)]
    return "\n".join(" ".join(sentences[a:b]) for a, b in zip([0] + breaks, ends))


def compose(seed: int, plot: Plot | None = None) -> Story:
    """The story of a seed. Equal seeds give equal stories."""
    rng = random.Random(seed)
    plot = plot or rng.choice(ALL_PLOTS)
    situation = dict(rng.choice(plot.situations))
    mood = rng.choice(tuple(phrases.MOODS))
    seasons = (situation["season"],) if "season" in situation else PLOT_SEASONS.get(plot.key, ())

    hero = pick_character(rng, None)
    friend = pick_character(rng, "he" if hero["gender"] == "she" else "she")
    while friend["kind"] == hero["kind"]:
        friend = pick_character(rng, friend["gender"])
    refs = {**setting_refs(rng, seasons), **thing_refs(rng, plot.key in HARD_PLOTS), **line_refs(rng),
            **friend_refs(friend), **hero_refs(rng, hero, plot.key)}
    refs.update({f"s_{key}": value for key, value in situation.items()})
    refs["mood"] = rng.choice(phrases.MOODS[mood])
    lesson = rng.choice(plot.lessons)
    refs["lesson"] = lesson

    sentences = [tidy(fill(rng.choice(phrases.OPENINGS), refs)), tidy(fill(rng.choice(phrases.TRAIT_LINES), refs))]
    for beat in plot.beats:
        template = rng.choice(beat).replace('"{kind}', '"{kind_line}')
        sentences.append(tidy(fill(template, refs)))
    sentences.append(tidy(fill(rng.choice(phrases.LESSON_LINES), refs)))
    sentences.append(tidy(fill(rng.choice(phrases.ENDINGS[mood]), refs)))

    short = tidy(fill(plot.summary, refs)) + " " + lesson
    words = fill("{H} and the {ob}" if plot.needs_object else "{H} the {kind}", refs).split()
    title = " ".join(w if w in ("and", "the") else capitalize(w) for w in words)
    return Story(paragraphs(rng, sentences), short, refs, plot, situation, mood, lesson, title)
