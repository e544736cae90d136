"""Tiny scenes, dense in names, that teach a model to keep its characters apart.

In a story one token in twenty is a name, too few for a small model to find out
early that names repeat. Here it is every third or fourth, and the scene is short.
"""

from __future__ import annotations

import random

from . import names, world
from .compose import capitalize, fill, with_article

# {A} and {B} are the characters, {O} is the thing, {P} the place.
LINES: tuple[str, ...] = (
    "{A} smiled at {B}.", "{A} looked at {B}, and {B} looked at {A}.", "\"Good morning, {B},\" said {A}.",
    "\"Good morning, {A},\" said {B}.", "\"Thank you, {A},\" said {B}.", "\"Where are you, {B}?\" called {A}.",
    "\"Here I am, {A}!\" called {B}.", "{A} walked to {P}.", "{A} and {B} met by {P}.", "{A} gave {B} the {O}.",
    "{B} gave {A} the {O}.", "\"Is this your {O}, {A}?\" asked {B}.", "\"Yes, it is my {O},\" said {A}.",
    "{A} laughed. {B} laughed too.", "{A} the {KA} sang, and {B} the {KB} listened.", "{A} waited for {B} at {P}.",
    "\"{A}!\" said {B}. \"{B}!\" said {A}.", "Everyone knew {A} and {B}.", "{A} put the {O} away.",
    "{B} told {A} about {P}.", "{A} was a {TA} {KA}.", "{B} liked {A}, and {A} liked {B}.",
    "{A} and {B} sat by the fire.", "The {KA} was {A}, and the {KB} was {B}.", "{A} ran home, and {B} ran after {A}.",
)
START = "Once {KA_a} named {A} met {KB_a} named {B}, and {A} had {O_a}."


def scene(seed: int) -> str:
    """Four to nine sentences about two characters, a thing and a place."""
    rng = random.Random(f"practice-{seed}")
    (kind_a, _), (kind_b, _) = rng.sample(names.ANIMALS, 2)
    pool = names.FEMALE_NAMES + names.MALE_NAMES
    name_a, name_b = rng.sample(pool, 2)
    thing = rng.choice(world.OBJECTS)[0]
    trait = rng.choice([t for t, _ in names.TRAITS if with_article(t).startswith("a ")])
    refs = {"A": name_a, "B": name_b, "KA": kind_a, "KB": kind_b, "KA_a": with_article(kind_a), "TA": trait,
            "KB_a": with_article(kind_b), "O": thing, "O_a": with_article(thing), "P": rng.choice(world.PLACES)}
    sentences = [START] if rng.random() < 0.5 else []
    sentences += rng.sample(LINES, rng.randint(4, 8))
    return " ".join(capitalize(fill(sentence, refs)) for sentence in sentences)
