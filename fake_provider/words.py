"""Words that are exactly one token each, so that token counts are exact with no tokenizer at all.

Every word here, written in lower case with a leading space, is one token in five vocabularies (cl100k,
o200k, p50k, the old Anthropic one and DeepSeek's). Nothing is promised for vocabularies that are not public.
"""

from __future__ import annotations

from itertools import accumulate

_MARKER_TEXT = """
able about above absent across actual addition after again align almost alone already also always amount
another approach assumed available back based because before behavior being between beyond body both
build built case changed child chosen clear closing come comma common complete component contain
correctly cost could counter cover current deal determine differ does dropped duration during each eager
effect either else emission empty ending entire entry equals even event every example exist expected
extra faster filtered finish first fixed found from full future gate general geometric global going
groups grow half hand handle have head health held here highest history image include initial inside
instead interval into join just know language legacy length less level like line list local location
longer lower main make manage maximum means minimal missing mode more much name normal note number
offset often oldest once only opening option order other outside over overall parallel partial pass path
pattern period plain point possible present provided raise ramp random rate rather reach ready real
reason related retained returned reversed roll running same saved scenarios seconds seed sense sentence
separate sequence served shorter should similar since single size skip small smooth some somewhat sorted
space specific split stand standard start status still style subset success such supply support
synthetic table taken text than that then there these they this those though three time together topic
total trailing type under unit until update upper useful using usually value waiting want wave well what
when where whether which while window with within without wrapped zero
"""
_FILLER_TEXT = """
accepted access activated activates add added additional address adds affects against all allow allowed
allows an and any append applied are arguments array arrays as assert at auto automatic avoid await
backward batches be becomes behaves bind blob block blocks bodies bool boundaries branch bucket buckets
but by cache caching call called calls can cannot carrying cases cause chat chunk chunks class cleared
client co collection comes compile completion computed config configured consistent constant consumer
containing content contiguous controls convert converted currently custom data database dataset datasets
decode decreases default defaults defined defines definition delta depending deployment detailed details
determines deviation dimensions directory document documented download downloaded echo embedded emit
emitted emitting enable enabled enables encoded end endpoint equivalent events existing exists
explicitly exposed factor feature field fields file files flag flags float followed following follows
for force format forwarded fun function functions generate generated generates generating generation
generic get gets given go handler handlers handling hash header headers hit hits host how if import in
including incoming index inference info inherit input inspect instance integer inter introduced is
isolation it items iteration its jumps latency leave leaving levels lifespan listener listens load
loaded loading log logged logging logs mandatory map maps match matches matching max may mechanism
mechanisms memory message messages meta method methods metric metrics min minimum model models modules
mount multi multiplied must named names namespace native needed needs never new nothing object objects
of omit on one op operations optional or output overhead own parameter parameters parsing particular
passed paths per pod populate port ports positional post pre precedence preset processed processes
processing processor produces profiles property protocol publish published publishes put queries queue
raised rank ranks receive received receiving release remote removed render repeats replace replay
reported represents request requests require required resolve respective response responses retrieved
return returning returns reused route router routes routing run runtime schema scope see send sending
sent sentences separated sequences server service serving session set sets setting settings severity
shutdown simulate simulated simulation simulator sleep slice so socket specified specifies specify stack
started starts startup state staying stays store stored stream streaming string strings structured
substitute succeeds successful suggested super supplies supported tables takes testing the their
threshold timeout timestamp to too tool tools top trace transfer treat triggers true try tuple two types
typing unknown unless up updated upstream use used uses validation valued values variable variables
vectors version via was we will wins wrapper wraps write writing you
"""

MARKER_WORDS: tuple[str, ...] = tuple(_MARKER_TEXT.split())
"""The alphabet of the marker: word i stands for byte i. Plain words, nothing that a guardrail could take
for an instruction; none contains "ref", the marker's opener. The order is the format: never change it."""

FILLER_WORDS: tuple[str, ...] = tuple(_FILLER_TEXT.split())
"""What pads prompts and answers; disjoint from the marker's alphabet, and no word contains "ref"."""

TOPIC_WORDS = 64
"""Words in one topic: texts with different offsets use different words, so that similarity caches miss."""

_TOPIC_STEP = 97
_RING = tuple(f" {word}" for word in FILLER_WORDS + FILLER_WORDS[:TOPIC_WORDS])
_TEXT = "".join(_RING)
_BEGINS: tuple[int, ...] = tuple(accumulate(map(len, _RING), initial=0))
"""Where in the text each word begins, with the space before it."""


def filler(n: int, offset: int = 0, skip: int = 0) -> str:
    """Text of exactly `n` tokens (each word with its leading space) from the topic that `offset` chooses.

    `skip` leaves out the first tokens of the same text, so `filler(a) + filler(b, skip=a) == filler(a + b)`.
    """
    start = offset * _TOPIC_STEP % len(FILLER_WORDS)
    turn, end = start + skip % TOPIC_WORDS, start + TOPIC_WORDS
    if turn + n <= end:
        return _words(turn, turn + n)
    whole, rest = divmod(n, TOPIC_WORDS)
    topics = (_words(turn, end) + _words(start, turn)) * whole
    if turn + rest <= end:
        return topics + _words(turn, turn + rest)
    return topics + _words(turn, end) + _words(start, turn + rest - TOPIC_WORDS)


def _words(start: int, end: int) -> str:
    """A stretch of the ring, cut from the text: joining words one by one would cost three times as much."""
    return _TEXT[_BEGINS[start] : _BEGINS[end]]


def filler_chars(n: int, offset: int = 0) -> int:
    """`len(filler(n, offset))`, without making the text."""
    start = offset * _TOPIC_STEP % len(FILLER_WORDS)
    before = _BEGINS[start]
    whole, rest = divmod(n, TOPIC_WORDS)
    return whole * (_BEGINS[start + TOPIC_WORDS] - before) + _BEGINS[start + rest] - before


def count_tokens(text: str) -> int:
    """The number of words in `text`, which is its number of tokens when all its words are from this list.

    For foreign text this is only a size that grows with the text (English prose has about 1.3 tokens a word;
    Chinese and JSON are far off): never take it for billing.
    """
    return len(text.split())
