"""The generated Markdown and text files: markup, encodings, scripts, shapes; each with what a reader should get.

Knows nothing of parsers; PDFs are in `layouts` and `odd_pdfs`.
"""

from __future__ import annotations

import codecs
import random
from typing import Any

from generated.record import Generated

TEXTS: list[Generated] = []


def text(name: str, content: str | bytes, **expected: Any) -> None:
    """Registers a file; content that is not bytes is written as UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    TEXTS.append(Generated(name, lambda: data, **expected))


def both(name: str, content: str, **expected: Any) -> None:
    """Registers a Markdown file all of which is one of its own passages."""
    text(name, content, passages=(content.strip("\n"),), **expected)


# --- Markdown: code

text(
    "four-backticks.md",
    "# Fences\n\n````md\n```sh\n# not a heading\n```\n\n## neither\n````\n\n## Real\n\nText after.\n",
    passages=("````md\n```sh\n# not a heading\n```\n\n## neither\n````", "Text after."),
    sections={"# not a heading": ("Fences",), "Text after.": ("Fences", "Real")},
    kinds={"# not a heading": "code", "## neither": "code", "## Real": "heading"},
)
text(
    "tilde-fences.md",
    "# Tildes\n\n~~~ python title='a'\n# comment\n\n```\nx = 1\n~~~\n\n# Next\n\nEnd.\n",
    passages=("# comment\n\n```\nx = 1\n~~~", "End."),
    sections={"# comment": ("Tildes",), "End.": ("Next",)},
    kinds={"x = 1": "code"},
)
text(
    "unclosed-fence.md",
    "# Open\n\n```\n# still code\n\n## so is this\n",
    passages=("# still code\n\n## so is this",),
    sections={"## so is this": ("Open",)},
    kinds={"## so is this": "code"},
)
text(
    "indented-code.md",
    "# Code\n\nBefore.\n\n    def tide():\n        # not a heading\n\n        return 3\n\nAfter.\n",
    passages=("Before.", "    def tide():\n        # not a heading\n\n        return 3", "After."),
    sections={"# not a heading": ("Code",), "After.": ("Code",)},
    kinds={"return 3": "code", "After.": "paragraph"},
)
text(
    "fence-in-list.md",
    "# Steps\n\n1. Run it:\n\n   ```sh\n   # as root\n   make\n   ```\n\n2. Look.\n\nDone.\n",
    passages=("1. Run it:\n\n   ```sh\n   # as root\n   make\n   ```\n\n2. Look.", "Done."),
    sections={"# as root": ("Steps",), "Done.": ("Steps",)},
    kinds={"# as root": "list"},
)

# --- Markdown: headings

text(
    "setext.md",
    "The Pier\n========\n\nText one.\n\nThe north\nlamp\n---\n\nText two.\n",
    title="The Pier",
    passages=("The Pier\n========", "Text one.", "Text two."),
    sections={"Text one.": ("The Pier",), "Text two.": ("The Pier", "The north lamp")},
    kinds={"The north\nlamp": "heading"},
)
text(
    "equal-sections.md",
    "# Log\n\n## Monday\n\nCalm.\n\n## Monday\n\nStorm.\n\n# Log\n\n## Monday\n\nRain.\n",
    passages=("Calm.", "Storm.", "Rain."),
    sections={"Calm.": ("Log", "Monday"), "Storm.": ("Log", "Monday"), "Rain.": ("Log", "Monday")},
)
text(
    "levels-that-jump.md",
    "# A\n\n#### Deep\n\nOne.\n\n## B\n\nTwo.\n\n###### Deeper\n\nThree.\n\n# C\n\nFour.\n",
    sections={"One.": ("A", "Deep"), "Two.": ("A", "B"), "Three.": ("A", "B", "Deeper"), "Four.": ("C",)},
    passages=("One.", "Two.", "Three.", "Four."),
)
text(
    "marked-up-headings.md",
    "# The `wick` and *oil* of [the lamp](lamp.md) ##\n\nIt burns.\n\n## C# #\n\nIt compiles.\n",
    title="The wick and oil of the lamp",
    passages=("It burns.", "It compiles."),
    sections={"It burns.": ("The wick and oil of the lamp",), "It compiles.": ("The wick and oil of the lamp", "C#")},
)
text(
    "hashes-that-are-no-headings.md",
    "# One\n\n#hashtag at noon\n\n\\# escaped\n\n####### seven\n\nA line\n    # continued\n",
    passages=("#hashtag at noon", "escaped", "####### seven"),
    sections={"#hashtag at noon": ("One",), "####### seven": ("One",), "A line": ("One",)},
)
LONG_HEADING = " ".join(f"word{number}" for number in range(600))
text(
    "very-long-heading.md",
    f"# {LONG_HEADING}\n\nShort text.\n",
    passages=(LONG_HEADING, "Short text."),
)
text(
    "three-hundred-headings.md",
    "".join(f"{'#' * (1 + n % 6)} Heading {n}\n\nText of {n}.\n\n" for n in range(300)),
    title="Heading 0",
    passages=tuple(f"Text of {n}." for n in range(300)),
    sections={"Text of 299.": tuple(f"Heading {n}" for n in range(294, 300)), "Text of 6.": ("Heading 6",)},
)
text("no-final-newline.md", "# End\n\nThe last line", passages=("# End", "The last line"), title="End")

# --- Markdown: what is not text

text(
    "comments.md",
    "<!-- licence: none -->\n\n# Tides\n\nSeen.\n\n<!--\n# Hidden heading\n\nhidden text\n\n-->\n\nSeen too.\n\n"
    "Inside <!-- secret --> a line.\n",
    passages=("Seen.", "Seen too.", "Inside", "a line."),
    absent=("licence", "Hidden heading", "hidden text", "-->", "secret"),
    sections={"Seen too.": ("Tides",)},
)
text(
    "comment-in-code.md",
    "# Code\n\n```html\n<!-- kept -->\n```\n\nUse `<!-- kept too -->` there.\n",
    passages=("<!-- kept -->", "`<!-- kept too -->`"),
)
text("only-comments.md", "<!-- nothing -->\n\n<!--\n\nto see\n-->\n", states=("no_text", "empty"))
text(
    "yaml-front-matter.md",
    "---\ntitle: 'The Lamp: a History'\nauthor: Inge Dahl\n# a comment\ntags: [lamp, oil]\n---\n\n# Chapter\n\nText.\n",
    title="The Lamp: a History",
    passages=("# Chapter", "Text."),
    absent=("author", "tags", "a comment", "---"),
    sections={"Text.": ("Chapter",)},
)
text(
    "toml-front-matter.md",
    '+++\ntitle = "Oil Prices"\ndate = 2025-03-14\n[extra]\nweight = 7\n+++\n\nText.\n',
    title="Oil Prices",
    passages=("Text.",),
    absent=("+++", "weight"),
)
text("only-front-matter.md", "---\ntitle: Nothing\n---\n", states=("no_text", "empty"))
text(
    "rule-is-no-front-matter.md",
    "# Notes\n\n---\n\ntitle: this is text\n\n---\n\nMore.\n",
    title="Notes",
    passages=("title: this is text", "More."),
)
text(
    "broken-front-matter.md",
    "---\ntitle: [unclosed\n---\n\n# Heading\n\nText.\n",
    passages=("Text.",),
    sections={"Text.": ("Heading",)},
)

# --- Markdown: blocks

text(
    "table.md",
    "# T\n\n| Pier | Tide |\n|:--|--:|\n| North | 3.2 \\| 3.4 |\n| South | `a|b` |\n\nAfter.\n",
    passages=("| Pier | Tide |\n|:--|--:|\n| North | 3.2 \\| 3.4 |\n| South | `a|b` |", "After."),
    kinds={"| North": "table", "After.": "paragraph"},
)
both(
    "nested-lists.md",
    "- one\n  - one one\n    - one one one\n\n      continued\n  - one two\n- two\n\n  1. first\n  2. second\n",
    kinds={"one one one": "list", "second": "list"},
)
text(
    "quotes.md",
    "# Said\n\n> He said:\n>\n> # Not a section\n>\n> > Deeper words.\nlazy line\n\nAfter.\n",
    passages=("He said:", "Deeper words.", "lazy line", "After."),
    sections={"After.": ("Said",), "Deeper words.": ("Said",)},
)
text(
    "links-and-images.md",
    "See [the log](log.md 'Log') and ![a gauge](gauge.png) or <https://tide.example/a_b?c=d>, [ref][1].\n\n"
    "[1]: https://example.org/\n\nEnd.\n",
    passages=("the log", "a gauge", "https://tide.example/a_b?c=d", "End."),
)
text(
    "html-blocks.md",
    "# H\n\n<details>\n<summary>More</summary>\n\nHidden but text.\n\n</details>\n\n<b>Bold</b> words.\n",
    passages=("More", "Hidden but text.", "Bold", "words."),
    sections={"Hidden but text.": ("H",)},
)
both("hard-breaks.md", "Two spaces end a line\nand a backslash\\\ntoo.\n")

# --- encodings

NORDIC = (
    "Der Pegel stieg über die Größe der Tür. Das naïve Café am Øresund blieb offen, wie jedes Jahr für Gäste.\n" * 3
)
RUSSIAN = (
    "Станция прилива измеряет уровень моря каждый день. Вечером смотритель зажигает лампу на северном пирсе.\n" * 3
)
JAPANESE = (
    "潮位観測所は毎朝、海面の高さを記録します。嵐のときは、テレメータで毎時記録します。灯台の光は夜まで続く。\n" * 3
)
CHINESE = (
    "潮汐观测站每天早晨记录海平面的高度。遇到风暴，每小时记录一次，并把记录写入日志。灯塔的光照到很远的地方。\n" * 3
)
KOREAN = "조위 관측소는 매일 아침 해수면의 높이를 기록한다. 폭풍이 오면 매시간 기록하고 등대의 불을 켠다.\n" * 3
GREEK = "Ο σταθμός μετρά τη στάθμη της θάλασσας κάθε πρωί. Το βράδυ ο φαροφύλακας ανάβει τη λάμπα στον προβλήτα.\n" * 3
CZECH = "Stanice měří hladinu moře každý den. Večer strážce rozsvítí lampu na severním molu, ať prší nebo sněží.\n" * 3
for name, content, encoding in (
    ("latin-1.txt", NORDIC, "latin-1"),
    ("windows-1252.txt", NORDIC + "“Quoted” – he said… for 5 €.\n", "cp1252"),
    ("windows-1251.txt", RUSSIAN, "cp1251"),
    ("koi8-r.txt", RUSSIAN, "koi8_r"),
    ("windows-1250.txt", CZECH, "cp1250"),
    ("windows-1253.txt", GREEK, "cp1253"),
    ("shift-jis.txt", JAPANESE, "cp932"),
    ("euc-jp.txt", JAPANESE, "euc_jp"),
    ("gb18030.txt", CHINESE, "gb18030"),
    ("big5.txt", "潮汐觀測站每天早晨記錄海平面的高度。遇到風暴，每小時記錄一次，並把記錄寫入日誌。\n" * 3, "big5"),
    ("euc-kr.txt", KOREAN, "euc_kr"),
    ("utf-16-le-with-mark.txt", NORDIC + CHINESE, "utf-16-le"),
    ("utf-16-be-with-mark.txt", NORDIC + CHINESE, "utf-16-be"),
    ("utf-32-with-mark.txt", NORDIC + CHINESE, "utf-32-le"),
    ("utf-16-le-without-mark.txt", NORDIC, "utf-16-le"),
    ("utf-16-be-without-mark.txt", NORDIC, "utf-16-be"),
    ("utf-8-with-mark.md", "# Überschrift\n\n" + NORDIC, "utf-8-sig"),
):
    marks = {"utf-16-le-with-mark.txt": codecs.BOM_UTF16_LE, "utf-16-be-with-mark.txt": codecs.BOM_UTF16_BE}
    marks["utf-32-with-mark.txt"] = codecs.BOM_UTF32_LE
    lines = [line for line in content.split("\n") if line and not line.startswith("#")]
    text(name, marks.get(name, b"") + content.encode(encoding), passages=tuple(lines), absent=("\ufeff", "\ufffd"))
text(
    "mixed-bad-bytes.txt",
    NORDIC.encode() + b"caf\xe9 at the pier \xff\xfe here\n" + NORDIC.encode(),
    passages=("Der Pegel stieg über die Größe der Tür.", "at the pier", "here", "Der Pegel stieg über"),
)
text(
    "surrogate-bytes.txt",
    b"Before the half \xed\xa0\x80 character. " + NORDIC.encode(),
    passages=("Before the half", "character.", "naïve Café"),
    absent=tuple("\ud800\udfff"),
)
text(
    "nuls.txt",
    b"The tide\x00 rises\x00.\n\nIt falls.\n" + NORDIC.encode(),
    passages=("The tide rises.", "It falls."),
    absent=("\x00",),
)
text(
    "controls.txt",
    "Bell\x07 and esc\x1b here.\x7f\n\nNext\x0bline\x85after.\n",
    passages=("Bell and esc", "here.", "after."),
    absent=tuple("\x07\x1b\x7f\x0b\x85"),
)
text("junk.txt", random.Random(4).randbytes(20_000), states=("failed:encoding",))
text("no-bytes.md", b"", states=("empty",))
text("blanks.txt", " \n\t \r\n\x0c \n", states=("empty", "no_text"))
text("wide-blanks.md", "\u3000\u3000\n\n\u00a0\u2003\n\u200b\ufeff\n", states=("empty", "no_text"))

# --- line ends and shapes

text(
    "crlf.md",
    "# One\r\n\r\n```\r\na\r\n\r\nb\r\n```\r\n\r\nText\r\nwraps.\r\n",
    passages=("```\na\n\nb\n```", "Text\nwraps."),
    absent=("\r",),
    sections={"Text": ("One",)},
)
text(
    "carriage-returns.txt",
    "First line.\rSecond line.\r\rNew paragraph.\r",
    passages=("First line.\nSecond line.", "New paragraph."),
    absent=("\r",),
)
text(
    "form-feeds.txt",
    "Page one.\x0cPage two.\n\x0c\nPage three.\n",
    passages=("Page one.", "Page two.", "Page three."),
    absent=("\x0c",),
)
SENTENCES = tuple(f"Reading {number} at the pier gave {number * 37 % 1000} millimetres." for number in range(20_500))
text("one-line-of-a-megabyte.txt", " ".join(SENTENCES), passages=SENTENCES[::1000])
LETTERS = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=5000))
text("five-thousand-letters.txt", f"Before.\n\n{LETTERS}\n\nAfter.\n", passages=("Before.", LETTERS, "After."))
text("five-thousand-letters.md", f"# Run\n\n{LETTERS}\n\nAfter.\n", passages=(LETTERS, "After."))
text("many-brackets.md", "# Deep\n\n" + "[" * 3000 + "\n\nAfter.\n", passages=("[" * 3000, "After."))
text("deep-quotes.md", "Before.\n\n" + ">" * 800 + " deep\n\nAfter.\n", passages=("Before.", "deep", "After."))
text("tabs.txt", "Name\tPlace\tTide\nAda\tNorth pier\t3.2\n", passages=("Name\tPlace\tTide\nAda\tNorth pier\t3.2",))

# --- scripts

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
text(
    "emoji.md",
    f"# Families {FAMILY}\n\nA family {FAMILY}, a heart ❤\ufe0f, a flag 🇩🇰, a hand 👍🏽.\n",
    passages=(f"A family {FAMILY}, a heart ❤\ufe0f, a flag 🇩🇰, a hand 👍🏽.",),
    sections={"a heart": (f"Families {FAMILY}",)},
)
for name, content in (
    ("chinese.md", CHINESE),
    ("japanese.txt", JAPANESE),
    ("thai.txt", "สถานีน้ำขึ้นน้ำลงวัดระดับน้ำทะเลทุกเช้าและบันทึกลงในสมุด\n" * 5),
    ("arabic.md", "محطة المد تقيس مستوى البحر كل صباح. في الليل يضيء الحارس المصباح؟\n"),
    ("hebrew.md", "תחנת הגאות מודדת את מפלס הים בכל בוקר, ובלילה מדליק השומר את המנורה.\n"),
    ("hindi.txt", "ज्वार स्टेशन हर सुबह समुद्र का स्तर मापता है। रात में दीपक जलता है।\n"),
    ("persian.txt", "ایستگاه هر روز سطح دریا را می\u200cسنجد و می\u200cنویسد.\n"),
):
    text(name, content, passages=tuple(content.strip().split("\n")))
text(
    "combining.txt",
    "Cafe\u0301 am Gro\u0308ßten Fjord, A\u030angstro\u0308m und n\u0303.\n",
    passages=("Café am Größten Fjord, Ångström und ñ.",),
    absent=("e\u0301", "o\u0308"),
)
text(
    "zero-width.txt",
    "An invis\u200bible bl\u2060ank, a soft\u00adened word, a mark\ufeff inside.\n",
    passages=("An invisible blank, a softened word, a mark inside.",),
    absent=("\u200b", "\u2060", "\u00ad", "\ufeff"),
)

# --- other kinds of text

LOG = "".join(
    f"2025-03-{1 + n % 28:02} 06:{n % 60:02}:00 WARN gauge[{n}]: level {n * 13 % 400} cm\n" for n in range(400)
)
text("station.log", LOG, passages=(LOG.strip(),))
CSV = "place,tide_m,note\n" + "".join(f'Pier {n},{n}.5,"calm, clear {n}"\n' for n in range(120))
text("tides.csv", CSV, passages=tuple(CSV.strip().split("\n")))
PYTHON = '''"""Reads tides."""

import sys


class Gauge:
    # not a heading
    def level(self) -> int:

        return 3


def main():
    print(Gauge().level())


main()
'''
text(
    "gauge.py",
    PYTHON,
    media_type="code",
    passages=(
        '"""Reads tides."""',
        "import sys",
        "class Gauge:\n    # not a heading\n    def level(self) -> int:",
        "        return 3",
        "def main():\n    print(Gauge().level())",
        "main()",
    ),
    kinds={"        return 3": "code"},
)
text(
    "gauge.json",
    '{"place": "pier", "levels": [1, 2, 3], "note": "caf\\u00e9 # no"}',
    passages=('{"place": "pier", "levels": [1, 2, 3],',),
)
text("README", "The tide station.\n\nRun it daily.\n", passages=("The tide station.", "Run it daily."))
text("photo.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(2000), states=("skipped:type",))
