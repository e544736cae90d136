"""Who appears in a story: kinds of character, names, traits.

Every list is our own. A kind is (noun, what it uses for hands); people kinds
say which pronoun they take when the noun fixes it.
"""

ANIMALS: tuple[tuple[str, str], ...] = (
    ("fox", "paws"), ("hedgehog", "paws"), ("badger", "paws"), ("mouse", "paws"),
    ("otter", "paws"), ("hare", "paws"), ("squirrel", "paws"), ("mole", "paws"),
    ("toad", "feet"), ("owl", "wings"), ("wren", "wings"), ("robin", "wings"),
    ("goose", "wings"), ("duck", "wings"), ("crow", "wings"), ("cat", "paws"),
    ("dog", "paws"), ("bear", "paws"), ("beaver", "paws"), ("rabbit", "paws"),
    ("goat", "hooves"), ("lamb", "hooves"), ("pony", "hooves"), ("donkey", "hooves"),
    ("raccoon", "paws"), ("weasel", "paws"), ("dormouse", "paws"), ("heron", "wings"),
    ("swan", "wings"), ("turtle", "feet"), ("frog", "feet"), ("magpie", "wings"),
)

# (noun, fixed pronoun or "" when either fits)
PEOPLE: tuple[tuple[str, str], ...] = (
    ("girl", "she"), ("boy", "he"), ("girl", "she"), ("boy", "he"),
    ("miller", ""), ("baker", ""), ("shepherd", ""), ("weaver", ""), ("tailor", ""),
    ("blacksmith", ""), ("potter", ""), ("carpenter", ""), ("clockmaker", ""),
    ("gardener", ""), ("lamplighter", ""), ("beekeeper", ""), ("innkeeper", ""),
    ("bookbinder", ""), ("cobbler", ""), ("tinker", ""), ("woodcutter", ""),
    ("candle maker", ""), ("basket maker", ""), ("piper", ""), ("teacher", ""),
    ("cook", ""), ("stonecutter", ""), ("sailor", ""), ("ferryman", "he"),
    ("fisherman", "he"), ("milkmaid", "she"), ("grandmother", "she"),
    ("grandfather", "he"), ("princess", "she"), ("prince", "he"), ("farmer", ""),
)

FEMALE_NAMES: tuple[str, ...] = tuple(
    "Ada Alma Anya Bea Bryony Clara Clover Cora Dilly Edith Elin Elsie Fern Flora "
    "Greta Hanna Hazel Heather Ida Ilse Iris Ivy Juna Juniper Kaya Lena Lila Linnet "
    "Lotte Mabel Maren Marta Maple Mina Mira Nell Nora Olive Opal Pearl Petra Pippa "
    "Poppy Rosa Rowena Runa Sable Saffron Sigrid Suri Tansy Thea Tilda Una Vera Willa "
    "Yara Zita".split()
)

MALE_NAMES: tuple[str, ...] = tuple(
    "Abel Alder Anton Arlo Barnaby Basil Benno Bram Bramble Burr Caspar Cedric Conrad "
    "Dov Edgar Emil Erik Felix Finn Flint Gus Hal Hugo Ivo Jasper Jonah Jory Kit Lars "
    "Leo Linus Ludo Magnus Marek Milo Moss Nico Ned Oren Oskar Otto Pascal Perrin Piet "
    "Quill Ralf Remy Rufus Sami Silas Soren Tam Theo Thistle Tobias Ulf Viktor Walt "
    "Wendel Yan".split()
)

# (adjective, a habit that shows it)
TRAITS: tuple[tuple[str, str], ...] = (
    ("shy", "{He} spoke so softly that even the crickets had to hush to hear {him}."),
    ("patient", "{He} could wait a whole afternoon for a kettle to boil and never sigh once."),
    ("curious", "{He} could not pass a closed door without wondering what was behind it."),
    ("proud", "{He} did not like to ask anyone for help."),
    ("careful", "{He} counted everything twice and tied every knot three times."),
    ("careless", "{He} left things wherever {he} happened to be standing."),
    ("cheerful", "{He} hummed while {he} worked, and the tune was never the same twice."),
    ("gloomy", "{He} always expected rain, even on the brightest morning."),
    ("generous", "{He} gave away so many buns that {he} often went without one."),
    ("stubborn", "Once {he} had made up {his} mind, no wind could turn {him}."),
    ("clever", "{He} liked riddles better than supper."),
    ("forgetful", "{He} tied a string around {his} wrist to remember things, and then forgot why."),
    ("timid", "{He} jumped when the floor creaked and when the fire popped."),
    ("brave", "{He} went first into dark cellars so that others did not have to."),
    ("lonely", "{He} laid the table for two each night, just in case."),
    ("restless", "{He} could not sit still while there was a hill {he} had not climbed."),
    ("honest", "{He} could not tell a lie, not even a very small one."),
    ("hasty", "{He} liked to be finished before {he} had begun."),
    ("dreamy", "{He} often stopped in the middle of the road to look at the clouds."),
    ("kind", "{He} never walked past anyone who was sad."),
    ("thrifty", "{He} saved every crumb, every pin and every bit of string."),
    ("jolly", "{He} laughed so loudly that the shutters shook."),
    ("quiet", "{He} listened more than {he} spoke."),
    ("grumpy", "{He} grumbled at the sun for rising and at the moon for being late."),
    ("playful", "{He} could turn any chore into a game."),
    ("gentle", "{He} stepped around the ants on the path."),
    ("neat", "{He} swept the doorstep each morning before anyone else was awake."),
    ("hopeful", "{He} kept a lamp in the window, because someone might always come."),
    ("boastful", "{He} told everyone about {his} great deeds, and some of them were true."),
    ("hardworking", "{He} was up before the rooster and in bed after the stars."),
    ("sleepy", "{He} could nap anywhere, even on a pile of firewood."),
    ("wise", "{He} had learned long ago that most troubles look smaller after a meal."),
    ("mischievous", "{He} had once painted a goose blue and blamed the sky."),
    ("modest", "{He} blushed whenever anyone praised {him}."),
    ("musical", "{He} heard a tune in every dripping gutter and squeaking gate."),
    ("hungry", "{He} was always thinking about the next meal."),
)

AGES: tuple[str, ...] = ("young", "little", "old", "small", "", "", "", "")

# Passing strangers and elders, named by what they are, never by a name.
ELDERS: tuple[tuple[str, str], ...] = (
    ("old heron", "she"), ("old tortoise", "he"), ("old ferrywoman", "she"),
    ("grey owl", "he"), ("old peddler", "he"), ("old bell ringer", "he"),
    ("old herb woman", "she"), ("grey badger", "he"), ("old lighthouse keeper", "he"),
    ("old spinner", "she"), ("old watchman", "he"), ("old shepherdess", "she"),
    ("old stone mason", "he"), ("wise old raven", "she"), ("old cheese maker", "she"),
    ("old net mender", "he"), ("old midwife", "she"), ("old mapmaker", "he"),
)

STRANGERS: tuple[tuple[str, str], ...] = (
    ("a tired peddler with a squeaking cart", "the peddler"),
    ("a lost lamb with burrs in its wool", "the lamb"),
    ("an old soldier with a wooden leg", "the soldier"),
    ("a young mother with a sleeping baby", "the mother"),
    ("a traveling musician with a broken shoe", "the musician"),
    ("a gosling that had fallen behind its flock", "the gosling"),
    ("a pilgrim with a torn cloak", "the pilgrim"),
    ("a small boy who did not know the way home", "the boy"),
    ("a small girl who had missed the last cart", "the girl"),
    ("a grey pony that limped on one leg", "the pony"),
    ("a letter carrier soaked to the skin", "the letter carrier"),
    ("an old woman with a bundle of sticks", "the old woman"),
    ("a puppeteer with a trunk full of puppets", "the puppeteer"),
    ("a stork with a hurt wing", "the stork"),
    ("a swallow too cold to fly", "the swallow"),
    ("a kitten left in a basket", "the kitten"),
)
