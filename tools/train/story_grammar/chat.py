"""Conversations around a story: requests it honors, questions it can answer."""

from __future__ import annotations

import random

from .compose import Story, capitalize, compose, fill, tidy, with_article

Message = dict[str, str]

MOOD_WORDS: dict[str, tuple[str, ...]] = {
    "cozy": ("cozy", "warm"), "funny": ("funny", "silly"), "sad": ("sad", "sad"),
    "exciting": ("exciting", "thrilling"), "gentle": ("gentle", "quiet"), "mysterious": ("mysterious", "strange"),
}

ASKS: tuple[str, ...] = (
    "Tell me a story about {subject}.", "Tell me {a_mood}story about {subject}.", "Can you tell me {a_mood}story about {subject}?",
    "I would like to hear {a_mood}story about {subject}.", "Please tell me {a_mood}tale about {subject}.",
    "Write {a_mood}story about {subject}.", "{a_mood}story about {subject}, please.", "Do you know {a_mood}story about {subject}?",
    "I cannot sleep. Tell me {a_mood}story about {subject}.", "It is raining. Tell me {a_mood}story about {subject}.",
    "Make up {a_mood}story about {subject}.", "Story: {subject}",
)
OPEN_ASKS: tuple[str, ...] = (
    "Tell me a story.", "Tell me {a_mood}story.", "Tell me {a_mood}bedtime story.", "I would like to hear {a_mood}story.",
    "Please tell me {a_mood}story.", "Can you tell me {a_mood}story by the fire?", "A story, please.", "Write a short story.",
)
SYSTEMS: tuple[str, ...] = (
    "You tell warm stories by the fire.", "You are a storyteller.", "You are Hearth, a small storyteller.",
    "You are a helpful assistant.", "Tell stories for children.",
)

# plot key -> the answer to the plot's own question
WHY_ANSWERS: dict[str, str] = {
    "lost": "It was lost because {s_why}.", "mended": "It broke because {s_why}.",
    "gift": "Because {s_need}.", "secret": "It was {s_truth}.", "stranger": "Because {s_why}.",
    "quarrel": "They quarreled because {s_why}.", "contest": "Because {s_why}.", "neighbor": "Because {s_cause}.",
    "fear": "Because {s_test}, and {F} needed help.", "craft": "{E_} said: \"{s_rule}.\"",
    "truth": "{H} was frightened, because {he} {s_deed}.", "small": "{H} {s_deed}.", "storm": "It {s_harm}.",
    "journey": "{H} wanted {s_goal}.", "harvest": "{H} {s_care}.",
    "winter": "Because {H} saw how cold and poor {F} was, and was ashamed.",
    "wish": "{H} wished {s_wish}, but then {s_miss}.",
    "promise": "Because {s_hurdle}.", "riddle": "The answer was {s_answer}.", "foundling": "{H} {s_care}.",
}

SEQUELS: tuple[tuple[str, ...], ...] = (
    ("The next morning {H} woke early.", "A year went by.", "Not long after that, there was another knock at the door.", "When spring came, {H} went back to {P}."),
    ("{He} remembered all that had happened and smiled.", "{H} told the story to everyone who would listen.", "{H} had not forgotten anything."),
    ("Then {a_S} came along and asked for help.", "Then a letter came, and it was full of good news.", "Then {H} found a small parcel on the doorstep, and in it was {food}."),
    ("\"{kind_line}\" said {H}, just as {he} would have done before.", "\"{hope}\" said {H} aloud.", "\"Well,\" said {H}, \"life is full of surprises.\""),
    ("They sat by the fire and talked until late.", "That evening there was {food} for everyone.", "And the whole {home} came to celebrate."),
)

SMALL_TALK: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("Hello!", "Hi", "Hello", "Good evening.", "Hi there!", "Good morning."),
     ("Hello! Come and sit by the fire. Shall I tell you a story?", "Good to see you. Would you like to hear a story?")),
    (("Who are you?", "What are you?", "What is your name?", "Are you a person?"),
     ("I am Hearth, a small storyteller. I know tales of foxes, millers, storms and lost lanterns.",
      "I am a very small language model called Hearth. I tell stories by the fire.")),
    (("What can you do?", "How can you help me?", "What do you know?"),
     ("I can tell you a story. Name a character, a thing, a place or a mood.", "I tell stories. Ask me for one about a fox and a lantern, for example.")),
    (("Thank you!", "Thanks!", "That was lovely.", "Thank you for the story."),
     ("You are welcome. Sleep well.", "I am glad that you liked it. The fire is always lit for you.")),
    (("Good night.", "Goodbye.", "Bye!", "I have to go."),
     ("Good night. The fire will be here when you come back.", "Goodbye. Take a warm thought with you.")),
    (("What is the capital of France?", "How much is two and two?", "Write a program.", "What is the weather today?", "Who won the election?", "Solve this equation."),
     ("I do not know about that. I am only a small storyteller. Shall I tell you a tale?", "That is beyond me. I only know stories. Would you like one?")),
    (("How are you?", "How do you feel today?"),
     ("Warm and well, thank you. The fire is burning nicely.", "Very well. I was just thinking of a new story.")),
)


def subject_of(rng: random.Random, story: Story) -> str:
    """A phrase naming parts that the story really has."""
    refs, text = story.refs, story.text
    kind = with_article(refs["kind"])
    forms = [kind, kind, f"{kind} named {refs['H']}", f"{refs['H']} the {refs['kind']}",
             fill(rng.choice(story.plot.themes), refs), f"{kind} and {fill(rng.choice(story.plot.themes), refs)}"]
    if story.plot.needs_object:
        forms += [f"{kind} and {refs['a_ob']}", f"{kind} and {with_article(refs['o'])}", f"{kind} and {with_article(refs['o'])}"]
        forms += [f"{kind} and a lost {refs['o']}"] * 3 if story.plot.key == "lost" else []
    if story.plot.needs_friend:
        forms += [f"{kind} and {with_article(refs['fkind'])}", f"{kind} and a friend, {with_article(refs['fkind'])}"]
    subject = rng.choice(forms)
    if refs["P"] in text and refs["P"] not in subject and rng.random() < 0.25:
        subject += f" {rng.choice(('near', 'by'))} {refs['P']}"
    return subject


def request(rng: random.Random, story: Story) -> str:
    """A user's first message, which the story honors."""
    mood_word = rng.choice(MOOD_WORDS[story.mood]) if rng.random() < 0.5 else ""
    a_mood = with_article(f"{mood_word} ") if mood_word else "a "
    asks = OPEN_ASKS if rng.random() < 0.12 else ASKS
    ask = rng.choice(asks).format(subject=subject_of(rng, story), a_mood=a_mood)
    if mood_word and mood_word not in ask and rng.random() < 0.5:
        ask += f" Make it {mood_word}."
    ask = capitalize(ask)
    return ask.lower().rstrip(".") if rng.random() < 0.06 else ask


def follow_up(rng: random.Random, story: Story) -> tuple[str, str]:
    """A second question with its answer."""
    refs = story.refs
    choice = rng.randrange(7)
    if choice == 0:
        sentences = [tidy(fill(rng.choice(beat), refs)) for beat in SEQUELS]
        return rng.choice(("What happened next?", "And then?", "Go on.", "What happened after that?")), " ".join(sentences)
    if choice == 1:
        return rng.choice(("Tell it shorter.", "Can you make it shorter?", "Summarize the story.", "In short?")), story.short
    if choice == 2:
        return rng.choice(("What is the lesson?", "What can we learn from it?", "What does it teach us?")), story.lesson
    if choice == 3:
        who = f"It is about {refs['a_H']}"
        who += f" and {refs['a_F']}." if story.plot.needs_friend else "."
        return rng.choice(("Who is it about?", "Who is in the story?")), who
    if choice == 4:
        where = f"It happens {refs['home_at']}"
        where += f", and part of it near {refs['P']}." if refs["P"] in story.text else "."
        return rng.choice(("Where does it happen?", "Where is the story set?")), where
    if choice == 5:
        return rng.choice(("What is it called?", "Give the story a title.")), story.title
    return fill(story.plot.why_question, refs), tidy(fill(WHY_ANSWERS[story.plot.key], refs))


def small_talk(rng: random.Random) -> list[Message]:
    """A short exchange without a story."""
    messages: list[Message] = []
    for questions, answers in rng.sample(SMALL_TALK, rng.choice((1, 1, 2))):
        messages.append({"role": "user", "content": rng.choice(questions)})
        messages.append({"role": "assistant", "content": rng.choice(answers)})
    return messages


def chat_turns(seed: int) -> list[Message]:
    """The conversation of a seed: mostly a request, a story and perhaps a question."""
    rng = random.Random(f"chat-{seed}")
    messages: list[Message] = []
    if rng.random() < 0.12:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    if rng.random() < 0.08:
        return messages + small_talk(rng)
    story = compose(seed)
    messages.append({"role": "user", "content": request(rng, story)})
    messages.append({"role": "assistant", "content": story.text})
    if rng.random() < 0.4:
        question, answer = follow_up(rng, story)
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return messages
