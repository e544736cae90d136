"""Sentences shared by all plots: openings, moods, spoken lines, endings."""

from __future__ import annotations

OPENINGS: tuple[str, ...] = (
    "Once upon a time there lived {home_at} {a_H}.",
    "There was once {a_H}, who lived {home_at}.",
    "Long ago, {home_at}, there lived {a_H}.",
    "{Home_at} there lived {a_H}.",
    "Not so very long ago, {a_H} lived {home_at}.",
    "Sit close to the fire, and I will tell you about {a_H} who lived {home_at}.",
    "This is the story of {a_H}, who lived {home_at}.",
    "My grandmother told me this tale. It is about {a_H} who lived {home_at}.",
    "In the days when chimneys were still swept by hand, {a_H} lived {home_at}.",
)

TRAIT_LINES: tuple[str, ...] = (
    "{H} was {trait}. {habit}",
    "Everyone knew that {H} was {trait}. {habit}",
    "{habit} Yes, {H} was {trait}, and everyone in the {home} knew it.",
    "{H} was {a_trait_noun}. {habit}",
    "{habit}",
)

# mood -> sentences that fit the middle of any plot
MOODS: dict[str, tuple[str, ...]] = {
    "cozy": (
        "Somewhere a kettle was singing, and the air smelled of wood smoke and apples.",
        "It was the kind of hour when every window glows and every chair looks soft.",
        "A warm light fell from the windows, and far away a dog barked twice and was content.",
        "There was a smell of fresh bread in the air, and that made everything easier.",
        "A cat lay curled beside the stove and purred as if it were paid for it.",
    ),
    "funny": (
        "Just then a hen walked by with a sock on its head, and nobody ever found out why.",
        "{H} was so lost in thought that {he} put {his} hat on backward and walked into a pump.",
        "A goose had been following along the whole time and gave advice that nobody had asked for.",
        "At that moment {H} sneezed so hard that {his} own hat flew off.",
        "A very fat cat was watching, and it laughed so much that it fell off the wall.",
    ),
    "sad": (
        "For a while there was nothing to say, and a single tear fell into the dust.",
        "The evening was grey, and even the bells sounded tired.",
        "{H} thought of all those who were far away, and {his} heart was heavy.",
        "The wind went by like someone sighing, and the last leaf came down.",
        "It was one of those hours in which the world seems very wide and very empty.",
    ),
    "exciting": (
        "There was no time to lose. {H} could hear {his} own heart pounding.",
        "Suddenly there was a crack and a rush of air, and {H} ducked just in time.",
        "Quick as a spark, {H} jumped over the ditch and ran on.",
        "The ground shook, the birds flew up, and everything happened at once.",
        "{H} held {his} breath. One wrong step, and all would have been lost.",
    ),
    "gentle": (
        "The moon came up slowly and laid a silver path across the grass.",
        "It was so still that one could hear a feather fall.",
        "A moth sat down on the sleeve of {H} and rested there a little while.",
        "The light was soft, and even the brook spoke in a whisper.",
        "Somewhere a mother was singing her child to sleep.",
    ),
    "mysterious": (
        "A thin mist crept over the ground, and something rustled where nothing could be seen.",
        "The shadows were longer than they should have been, and a bell rang although nobody had touched it.",
        "For an instant {H} thought that {he} saw two green eyes, but then they were gone.",
        "Nobody spoke. Far off, a door opened and closed again, although no house was there.",
        "The stars seemed to lean down, as if they wanted to listen.",
    ),
}

WORRY: tuple[str, ...] = (
    "What shall I do now?", "I do not know what to do.", "This will never come right.",
    "If only I were not so alone with this.", "Oh, what a day this is!", "I wish I knew the way.",
    "How could this happen?", "It is too much for me.", "What if it goes wrong?", "I am not sure that I can.",
    "I should have been more careful.", "Why must it be so hard?",
)

HOPE: tuple[str, ...] = (
    "There is always a way.", "Do not lose heart.", "We will manage it together.",
    "It is not as bad as it looks.", "Let us try, and then we shall know.", "You can do more than you think.",
    "One step and then another.", "Dry your eyes. We have work to do.", "Nothing is lost as long as we try.",
    "I believe in you.",
)

KIND: tuple[str, ...] = (
    "Come in and sit by the fire.", "You shall not be alone tonight.", "What is mine is yours.",
    "Come, there is room for you.", "Take my hand and do not be afraid.", "Stay as long as you like.",
    "Let me help you.", "First you must get warm.", "Come along, we will find a way.",
)

THANKS: tuple[str, ...] = (
    "I will never forget this.", "You have a good heart.", "How can I ever repay you?",
    "Thank you, my friend.", "You came when I needed you.", "That is the kindest thing anyone has done for me.",
    "I am lucky to know you.", "Thank you a thousand times.",
)

# mood -> last sentences
ENDINGS: dict[str, tuple[str, ...]] = {
    "cozy": (
        "Then the fire was banked, the lamp was put out, and everyone slept well.",
        "And the kettle sang, the cat purred, and the night could be as dark as it liked.",
        "Outside it grew cold, but by the hearth of {H} it was always warm.",
    ),
    "funny": (
        "And if nobody has told {H} to stop, {he} is still laughing today.",
        "As for the geese of the {home}, they claimed afterward that everything had been their own idea.",
        "They laughed until the lid fell off the pot, and then they laughed about the lid.",
    ),
    "sad": (
        "Sometimes {H} still thought of it in the evening, and it hurt a little, but less each year.",
        "Not everything can be made whole again, but that night {H} slept without tears.",
        "And though something had been lost, something else had begun to grow in its place.",
    ),
    "exciting": (
        "{H} slept for two whole days after that, and then {he} was ready for the next adventure.",
        "People still talk about that day, and each time they tell it, the danger grows a little.",
        "And whenever the wind rattles the door, {H} looks up and grins.",
    ),
    "gentle": (
        "And over the roofs the stars came out, one after another, as quiet as snow.",
        "Then it was still, and the only sound was the soft breathing of the fire.",
        "So the day ended, gently, as a leaf comes to rest on the water.",
    ),
    "mysterious": (
        "But who it was that lit a small blue light on the hill that night, nobody knows to this day.",
        "Since then, on certain nights, a small light can be seen at the window, and nobody is afraid of it.",
        "And some things {H} never told anyone, not even the fire.",
    ),
}

LESSON_LINES: tuple[str, ...] = (
    "That is why people in the {home} say: {lesson}",
    "\"{lesson}\" {H} liked to say afterward.",
    "Remember, little one: {lesson}",
    "{lesson}",
    "And so the old saying is true: {lesson}",
    "",
)
