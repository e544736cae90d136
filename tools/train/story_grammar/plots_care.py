"""Plots of care and wit: a promise kept, a riddle solved, a foundling raised."""

from __future__ import annotations

from .plot_types import Plot

PROMISE = Plot(
    key="promise",
    themes=("a promise", "keeping a promise", "a promise that was hard to keep"),
    needs_object=True,
    needs_friend=True,
    situations=(
        {"season": "autumn", "vow": "to bring back the {ob} before the first snow", "hurdle": "the snow came a week early", "way": "walked all night in a line of lanterns that the neighbors held up", "gain": "the whole {home} learned what a promise is worth"},
        {"season": "winter", "vow": "to light the fire every evening until {F} came home", "hurdle": "the last log had burned", "way": "burned an old chair, and then the other old chair", "gain": "{F} saw the smoke from far away and found the house in the dark"},
        {"season": "summer", "vow": "to water the roses of {F} all summer", "hurdle": "the well ran dry", "way": "carried dew in the {ob}, drop by drop, at sunrise", "gain": "one rose bloomed, and it was the reddest of them all"},
        {"season": "autumn", "vow": "to visit {F} on the day of the fair", "hurdle": "the ferry had stopped for the year", "way": "walked three days around the lake", "gain": "they danced until the fiddles were put away"},
        {"vow": "to keep the {ob} safe for {F}", "hurdle": "a rich merchant offered a purse of gold for it", "way": "shook {his} head and closed the door", "gain": "{F} came back and wept for joy at the sight of it"},
        {"vow": "to learn the old song by heart for {F}", "hurdle": "nobody was left who knew the second verse", "way": "asked at every house, and found one line here and one line there", "gain": "the song was whole again, and now the children sing it"},
    ),
    beats=(
        ("{H} had a dear friend, {a_F}.", "Next to {P} lived {a_F}, and {H} was very fond of {fhim}."),
        ("Before {F} went away, {fhe} left {a_ob} with {H}.", "One day {F} had to leave, and {fhe} gave {H} {a_ob} as a keepsake."),
        ("\"Will you promise me something?\" asked {F}. And {H} promised {s_vow}.", "{H} gave {his} word {s_vow}."),
        ("\"A promise is a promise,\" said {H}.", "They shook on it and both were content."),
        ("For a long time all went well.", "Weeks passed, and {H} thought of it every day."),
        ("{Time}, however, {s_hurdle}.", "But {time}, {s_hurdle}."),
        ("{weather}",),
        ("\"{worry}\" said {H}.", "\"Nobody could blame you if you gave up now,\" said the neighbors."),
        ("{He} looked at the {ob} and remembered the face of {F}.", "{H} sat by {P} and thought about it for a long while."),
        ("{mood}",),
        ("Then {he} {s_way}.", "In the end {he} {s_way}."),
        ("It was hard, but it was done.", "It was more than {he} had thought {he} could do."),
        ("And so it came about that {s_gain}.", "{H} never regretted it, for {s_gain}."),
        ("\"{thanks}\" said {F}.", "Then they sat together over {food} and had much to tell."),
    ),
    why_question="Why was the promise hard to keep?",
    summary="{H} promised {F} {s_vow}. Although {s_hurdle}, {he} kept the promise.",
    lessons=("A promise is a bridge, so build it well.", "A word once given keeps the giver warm.", "Who keeps small promises will keep great ones."),
)

RIDDLE = Plot(
    key="riddle",
    themes=("a riddle", "solving a riddle", "a clever answer"),
    needs_object=False,
    needs_friend=True,
    situations=(
        {"question": "What goes through the door and never through the house?", "wrong": "The wind", "answer": "the keyhole", "hint": "{H} felt in a pocket for the door key"},
        {"question": "What grows smaller the more you feed it with time?", "wrong": "A loaf of bread", "answer": "a candle", "hint": "{H} watched the candle burn down on the table"},
        {"question": "What has many teeth and never bites?", "wrong": "A toothless dog", "answer": "a comb", "hint": "{F} had straw in the hair and began to comb it out"},
        {"question": "What can you give away and still keep?", "wrong": "A cold", "answer": "your word", "hint": "{F} reminded {H} of a promise"},
        {"question": "What runs all day and never leaves its bed?", "wrong": "A lazy hare", "answer": "the river", "hint": "{H} stopped to drink from the river"},
        {"question": "What is full of holes and still holds water?", "wrong": "An old bucket", "answer": "a sponge", "hint": "{F} was washing the floor and squeezed out the sponge"},
        {"question": "What follows you all day and leaves you at night?", "wrong": "A hungry cat", "answer": "your shadow", "hint": "the sun came out, and {H} saw a long dark shape on the road"},
        {"question": "What has a face and two hands and cannot wave?", "wrong": "A scarecrow", "answer": "a clock", "hint": "the clock in the corner struck the hour"},
    ),
    beats=(
        ("{Time}, {H} and {F} the {fkind} were on their way to {P}.", "{Time}, {H} set out for {P} with {a_F}."),
        ("{weather}",),
        ("Before they could go on, {a_E} stopped them.", "There sat {a_E} in the middle of the path and would not move."),
        ("\"Nobody passes who cannot answer my riddle,\" said {E}.", "\"First you must solve a riddle,\" said {E}. \"I have so little company.\""),
        ("\"Listen well. {s_question}\"", "{E_} raised a finger. \"{s_question}\""),
        ("\"{s_wrong}!\" cried {F} at once. But that was wrong.", "\"{s_wrong},\" guessed {F}. {E_} laughed until {ehis} hat slid down."),
        ("\"You may come back tomorrow,\" said {E}, \"and the day after, for I have time.\"", "\"Think,\" said {E}. \"The answer is nearer than you believe.\""),
        ("{H} thought about it all the way home and all through supper.", "That night {H} and {F} lay awake and whispered every answer they could think of."),
        ("\"{worry}\" said {H}.", "\"{hope}\" said {F}."),
        ("{mood}",),
        ("Then it happened that {s_hint}.",),
        ("{H} jumped up. \"I have it!\" {he} cried.", "All at once {H} began to laugh. \"It was right in front of us!\" {he} said."),
        ("They ran back to {E}. \"The answer is {s_answer},\" said {H}.", "\"It is {s_answer}!\" {H} called to {E} from far away."),
        ("\"So it is,\" said {E}, and made way with a bow.", "{E_} clapped with delight. \"In forty years nobody has guessed it,\" {ehe} said."),
        ("Then {ehe} invited them to share {food}.", "From then on they came every week, and there was always a new riddle."),
    ),
    why_question="What was the answer to the riddle?",
    summary="{E_} asked {H} and {F} a riddle: {s_question} After much thought {H} found that it was {s_answer}.",
    lessons=("Look at what lies in front of you.", "A good question is company for a whole evening.", "Two heads crack a riddle as two stones crack a nut."),
)

FOUNDLING = Plot(
    key="foundling",
    themes=("a foundling", "caring for a baby animal", "looking after somebody small"),
    needs_object=False,
    needs_friend=True,
    situations=(
        {"small": "an egg that lay all alone in the grass", "it": "the egg", "care": "kept it warm in a woolen sock by the stove", "grown": "a duckling came out and followed {H} everywhere", "bye": "the duckling grew up and flew south, but every spring it came back"},
        {"small": "a fawn with a thorn in its foot", "it": "the fawn", "care": "drew out the thorn and bathed the foot in chamomile", "grown": "the fawn could run again", "bye": "it went back to the woods, but on snowy mornings there were tracks by the door"},
        {"small": "a baby bat that had fallen from the roof", "it": "the bat", "care": "fed it with warm milk from a straw", "grown": "the bat could fly three times around the lamp", "bye": "it moved into the attic and kept all the gnats away"},
        {"small": "a puppy in a sack by the road", "it": "the puppy", "care": "shared the bed and the supper with it", "grown": "the puppy had paws as big as saucers", "bye": "it never left again and barked at the moon so that everyone could sleep in peace"},
        {"small": "a snail with a cracked shell", "it": "the snail", "care": "patched the shell with a drop of wax", "grown": "the shell was whole and even a little shiny", "bye": "it went on its way, and by evening it had got as far as the gate"},
        {"small": "a young swift that could not rise from the ground", "it": "the swift", "care": "lifted it up a little higher every day", "grown": "the swift spread its wings and did not fall", "bye": "it circled the chimney three times to say thank you"},
        {"small": "a piglet that had fallen off a cart", "it": "the piglet", "care": "gave it a bath and a bed of clean straw", "grown": "the piglet was round and pink and knew its own name", "bye": "the farmer came to fetch it, saw how happy it was and let it stay"},
    ),
    beats=(
        ("{Time}, {H} found something near {P}.", "{Time}, {H} heard a faint sound near {P}."),
        ("{weather}",),
        ("It was {s_small}.", "When {he} bent down, {he} saw {s_small}."),
        ("{H} looked around, but nobody was there to whom it could belong.", "\"Who has left you here?\" asked {H}, but there was no answer."),
        ("\"{kind}\" {he} said.", "\"Then I shall look after you,\" said {H}."),
        ("{He} carried it home very carefully.", "{He} wrapped it in a scarf and carried it home."),
        ("\"You know nothing about such things,\" said {F} the {fkind}.", "{A_F} looked in at the window. \"It will be a great deal of work,\" said {F}."),
        ("\"Then I will learn,\" said {H}.", "\"I know,\" said {H}, \"but somebody must do it.\""),
        ("Day and night {he} was there, and {he} {s_care}.", "{H} {s_care}."),
        ("{mood}",),
        ("Sometimes {he} was so tired that {he} fell asleep in the chair, and then {F} took over.", "{F} came by every day, at first to scold and later to help."),
        ("And slowly, slowly, things got better. After some weeks {s_grown}.", "Then came the great day: {s_grown}."),
        ("{H} was proud and a little sad, as one is at such times.", "\"Look at that!\" cried {F}, and wiped away a tear."),
        ("In the end {s_bye}.", "And what became of {s_it}? Well, {s_bye}."),
        ("{H} and {F} celebrated with {food}.", "\"You were right to try,\" said {F}."),
    ),
    why_question="How did {H} take care of {s_it}?",
    summary="{H} found {s_small} and {s_care}. In the end {s_bye}.",
    lessons=("Small things grow where they are loved.", "To care for another is to grow oneself.", "Love sometimes means opening the door."),
)

PLOTS: tuple[Plot, ...] = (PROMISE, RIDDLE, FOUNDLING)
