"""Make the PDF files of the sample corpus in sample_docs/.

All texts are invented for this project: they describe the "Skagen Tide Station", a
harbour observatory that does not exist. The Markdown and plain text files of the corpus
are kept by hand; this script writes only the PDFs, with PyMuPDF and its built-in fonts:

    handbook/instrument-handbook.pdf    headings, outline, running header, one table
    handbook/safety-rules.pdf           plain headings
    papers/storm-surge-two-column.pdf   abstract, two columns, hyphenated line ends

Three more are bad on purpose, to show what an indexer does with them:

    broken/truncated.pdf         cut off at 60 % of its bytes
    broken/password.pdf          AES-256, user password "harbour"
    broken/scan-image-only.pdf   pictures of text, no text layer

Two runs give the same text. Usage: python scripts/make_sample_docs.py [FOLDER]
"""

import re
import sys
from pathlib import Path

import pymupdf

A4, A5, GUTTER = (595, 842), (420, 595), 18
BODY, BOLD = "tiro", "tibo"
HEADINGS = {"#": (1.8, 0), "##": (1.35, 1), "###": (1.1, 2)}  # mark: (scale, TOC level)
DATE = "D:20240304090000Z"
PASSWORDS = {
    "encryption": pymupdf.PDF_ENCRYPT_AES_256,
    "user_pw": "harbour",
    "owner_pw": "harbour-master",
}


def wrap(text: str, font: str, size: float, width: float, hyphenate: bool) -> list[str]:
    """Breaks text into lines no wider than width, hyphenating the words in HYPHENS."""
    cuts = {w.replace("-", ""): w.index("-") for w in HYPHENS.split()}
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".lstrip()
        if pymupdf.get_text_length(longer, font, size) <= width:
            line = longer
            continue
        stem = re.sub(r"\W+$", "", word)
        cut = cuts.get(stem, 0) if hyphenate else 0
        start = f"{line} {word[:cut]}-"
        if cut and pymupdf.get_text_length(start, font, size) <= width:
            lines.append(start)
            line = word[cut:]
        else:
            lines.append(line)
            line = word
    return [*lines, line]


class Flow:
    """Pours marked-up text into the columns of one page after another.

    Args:
        page_size: Width and height of a page in points.
        size: Size of the body type in points.
        title: Title of the document, also its running header.
    """

    def __init__(self, page_size: tuple[int, int], size: float, title: str):
        self.page_size, self.size, self.title = page_size, size, title
        self.doc, self.columns = pymupdf.open(), 1
        self.toc: list[list[object]] = []
        self.margin = 0.1 * page_size[0]
        self.new_page()

    def new_page(self) -> None:
        """Starts a page, with its running header, at the first column."""
        self.page = self.doc.new_page(width=self.page_size[0], height=self.page_size[1])
        self.write(self.margin, self.margin - 14, self.title, "helv", 8)
        self.column, self.y = 0, self.margin + 14
        self.top = self.y

    def write(self, x: float, y: float, text: str, font: str, size: float) -> None:
        """Sets one line of text on the current page."""
        self.page.insert_text((x, y), text, fontname=font, fontsize=size)

    @property
    def width(self) -> float:
        """Width of one column."""
        inner = self.page_size[0] - 2 * self.margin
        return (inner - GUTTER * (self.columns - 1)) / self.columns

    @property
    def x(self) -> float:
        """Left edge of the current column."""
        return self.margin + self.column * (self.width + GUTTER)

    def need(self, height: float) -> None:
        """Moves to the next column or page unless height points are left."""
        if self.y + height > self.page_size[1] - self.margin:
            self.column, self.y = self.column + 1, self.top
            if self.column == self.columns:
                self.new_page()

    def paragraph(self, text: str, font: str, size: float, indent: float = 0) -> None:
        """Sets one wrapped block of text followed by a small gap."""
        for line in wrap(text, font, size, self.width - indent, self.columns > 1):
            self.need(1.3 * size)
            self.y += 1.3 * size
            self.write(self.x + indent, self.y, line, font, size)
        self.y += 0.55 * self.size

    def table(self, rows: list[list[str]]) -> None:
        """Draws a ruled table with columns of equal width."""
        height, width = 1.7 * self.size, self.width / len(rows[0])
        self.need(height * len(rows))
        for number, row in enumerate(rows):
            font, fill = (BODY, None) if number else (BOLD, (0.9, 0.9, 0.9))
            for column, text in enumerate(row):
                x = self.x + column * width
                cell = (x, self.y, x + width, self.y + height)
                self.page.draw_rect(cell, width=0.6, fill=fill)
                self.write(x + 5, self.y + 0.7 * height, text, font, 0.9 * self.size)
            self.y += height
        self.y += self.size

    def pour(self, text: str) -> pymupdf.Document:
        """Sets a whole text and returns the finished document.

        The text is made of blocks: # headings, list items, | tables |, paragraphs, and
        {columns}, after which there are two columns.
        """
        for block in re.split(r"\n(?=- |\d\. )|\n\n", text.strip()):
            mark, _, rest = block.partition(" ")
            if mark in HEADINGS:
                scale, level = HEADINGS[mark]
                self.need((13 - 3 * level) * self.size)
                if level:
                    self.y += 0.6 * self.size
                    self.toc.append([level, rest, len(self.doc)])
                self.paragraph(rest, BOLD, scale * self.size)
            elif mark == "{columns}":
                self.columns, self.top = 2, self.y
            elif mark == "|":
                self.table([row[2:].split(" | ") for row in block.splitlines()])
            else:
                indent = 10 if re.match(r"- |\d\. ", block) else 0
                self.paragraph(block, BODY, self.size, indent)
        for number, page in enumerate(self.doc, 1):
            self.page, foot = page, f"Page {number} of {len(self.doc)}"
            y = self.page_size[1] - self.margin + 22
            self.write(self.page_size[0] / 2 - 22, y, foot, "helv", 8)
            page.clean_contents()
        self.doc.set_toc(self.toc)
        self.doc.set_metadata({"title": self.title, "creationDate": DATE, "modDate": DATE})
        return self.doc


def scan_of(doc: pymupdf.Document) -> pymupdf.Document:
    """Returns a copy of doc in which every page is one low-resolution grey picture."""
    scan = pymupdf.open()
    for page in doc:
        picture = page.get_pixmap(dpi=72, colorspace=pymupdf.csGRAY)
        new = scan.new_page(width=page.rect.width, height=page.rect.height)
        new.insert_image(new.rect, stream=picture.tobytes("jpeg", jpg_quality=50))
    return scan


def main(folder: Path) -> None:
    """Writes all six PDFs below folder."""
    for name, page_size, size, title, text in DOCUMENTS:
        path = folder / f"{name}.pdf"
        path.parent.mkdir(parents=True, exist_ok=True)
        doc = Flow(page_size, size, title).pour(text)
        if path.stem == "scan-image-only":
            doc = scan_of(doc)
        lock = PASSWORDS if path.stem == "password" else {}
        doc.save(path, garbage=3, deflate=True, no_new_id=True, **lock)
        if path.stem == "truncated":
            data = path.read_bytes()
            path.write_bytes(data[: len(data) * 6 // 10])


# The texts. Only Latin-1 characters: the built-in fonts know no others.

HANDBOOK = """
# Instrument Handbook

Skagen Tide Station, seventh edition, March 2024. For observers and technicians. Keep a
printed copy in the instrument hut; send corrections to the instrument keeper.

## 1 The station

### 1.1 Site and purpose

The station has stood on the west mole of the harbour since 1911. It records the height
of the sea, the weather that moves it, and the temperature and salinity of the water.
The mean tidal range here is only 0.34 m, so most large changes of level come from wind
and air pressure and not from the moon. The instrument hut stands 3.9 m above station
datum and stayed dry in every surge since it was rebuilt in 1968.

### 1.2 Station datum and benchmarks

All levels are given in metres above station datum. Station datum lies 2.412 m below the
brass bolt called Benchmark A, which is set in the granite step of the old customs
house. Benchmarks B and C, on the mole itself, serve as checks. The three bolts are
levelled against each other every May. If Benchmark B has moved by more than 3 mm
against A since the year before, tell the instrument keeper before any value is
published.

## 2 Level instruments

### 2.1 Radar gauge

The radar gauge is the primary tide gauge. It hangs from a steel boom 5.20 m above
station datum and looks straight down at the water with a 26 GHz beam that is 8 degrees
wide. It measures once a second; the logger keeps the mean of each minute. Its
uncertainty in calm water is 3 mm. Nothing may stand within 0.9 m of the beam axis at
the water line. Moored boats, nets and ropes are the commonest cause of sudden false
steps in the record.

### 2.2 Float gauge

The float gauge is the backup. A copper float of 30 cm diameter rides in the stilling
well, a concrete pipe 1.1 m wide with an intake of 40 mm at 1.9 m below datum. The
intake damps waves shorter than about two minutes. The well silts up: pump it out when
the mud in it is deeper than 25 cm, which happens about every third year. Replace the
float wire after five years even if it looks sound.

### 2.3 Pressure sensor

A pressure sensor is clamped to the foot of the mole at 2.80 m below datum. It sees the
weight of water and air together, so the barometer reading must be subtracted before the
depth is calculated. A water density of 1022 kg per cubic metre is assumed. Barnacles on
the inlet make the sensor sluggish; a diver cleans it in April and in September.

## 3 Weather and water instruments

### 3.1 Barometer and anemometer

The digital barometer stands in the hut at 4.6 m above datum and is read every ten
seconds. The anemometer is at the top of the 10 m mast. It reports the mean wind of ten
minutes and the highest gust of three seconds. Its cup bearings are due for exchange
when the cups no longer start to turn at 0.5 m/s.

### 3.2 Water thermometer and salinity cell

Both hang in a perforated pipe 1.0 m below the lowest low water. Rinse the salinity cell
with distilled water every Monday. Salinity normally lies between 19 and 31 because
Baltic and North Sea water take turns at the harbour mouth; a value outside 12 to 35
points to a fouled cell.

## 4 Calibration

### 4.1 Calibration intervals

The tide gauge is calibrated every 90 days. The other instruments follow the table
below. An instrument that is overdue by more than 14 days is marked as uncalibrated in
the data until the work has been done.

| Instrument | Interval | Permitted error
| Radar gauge | 90 days | 5 mm
| Float gauge | 6 months | 10 mm
| Pressure sensor | 12 months | 8 mm
| Barometer | 12 months | 0.3 hPa
| Anemometer | 24 months | 0.5 m/s
| Water thermometer | 6 months | 0.05 °C
| Salinity cell | 3 months | 0.2

### 4.2 Calibrating the radar gauge

Choose a day with wind below 6 m/s. Two people are needed and the work takes about two
hours.

1. Set the logger to maintenance, so that the minutes are flagged M.
2. Swing the boom inwards and hang the steel target plate below the sensor.
3. Measure the distance at 1.500 m, 3.000 m and 4.500 m, five minutes at each.
4. Compare with the steel tape. Correct the tape by 0.012 mm per metre and degree.
5. If any mean differs by more than 5 mm, enter a new offset and repeat from step 3.
6. Swing the boom out, read the tide staff ten times, and end maintenance.

Sign the calibration sheet and file it under the serial number of the sensor, not under
the date.

## 5 When something goes wrong

### 5.1 When a sensor freezes

Ice forms on the radar horn and in the mouth of the stilling well when the air stays
below -6 °C with spray. The sign of a frozen sensor is a level that does not change by
even 1 mm for ten minutes. Do this, in this order:

1. Flag the record F from the first unchanged minute.
2. Switch on the 40 W heating tape at panel H2 and wait 30 minutes.
3. If ice remains, pour lukewarm fresh water over it, never warmer than 30 °C.
4. Never knock or scrape the ice: the horn window is 2 mm thin and cracks.
5. Compare with the tide staff three times before you clear the flag.

If the sensor is still frozen after two hours, switch the public feed to the pressure
sensor, which lies below the ice.

### 5.2 Power failure

The battery bank holds 200 Ah and carries the logger and the gauges for 52 hours,
without the heating tape. Start the petrol generator when the bank falls below 11.8 V.
The generator runs seven hours on one tank of 9 litres. Switch off the hut heater first.

### 5.3 Clock errors

The logger takes its time from a satellite receiver and keeps UTC all year. If the
receiver is lost, the clock drifts by about 0.4 s a day. A clock that is wrong by more
than 5 s is set by hand, and the jump is written in the station log with the time before
and the time after. Never move a clock backwards across a full hour: stop the logger and
wait instead.

## 6 Spare parts

One complete radar sensor, two floats, 20 m of float wire, a barometer and a set of
fuses are kept in the grey cupboard in the hut. The spare radar sensor is powered up for
one day every quarter, so that its capacitors stay formed. When a spare is used, order
the next one the same week; the radar sensor has a delivery time of eleven weeks.

## 7 Routine work

### 7.1 The daily round

The morning observer walks the round at 08:00 local time. It takes 25 minutes in good
weather.

1. Read the tide staff and compare it with the minute value of the radar gauge.
2. Look at the boom, the stays and the mast for anything loose or fouled.
3. Read the battery voltage and the fuel level and enter both in the station log.
4. Empty the rain collector and note the amount to the nearest tenth of a millimetre.

If the staff and the radar gauge differ by more than 20 mm, read the staff again after
ten minutes. If the difference stays, call the instrument keeper.

### 7.2 The weekly check

On Mondays the observer compares the logger clock with a time signal, drains the water
trap of the pressure line and copies the week's raw files to the two disks in the
customs house. The disks are kept in different rooms and are replaced after four years.

### 7.3 Handing over

An observer who leaves the station for more than three days writes a handover note. It
names the instruments that are out of order, the flags that are still open and the
visits that have been promised. The note hangs on the hook above the logger until the
next person has signed it.
"""

SAFETY = """
# Safety Rules

These rules hold for everyone on the mole, in the hut and in the boat of the Skagen Tide
Station: staff, guests and contractors. The duty officer may stop any work at any time
and does not have to give a reason.

## Before you go out on the mole

Look at the wind display in the hut. No one goes beyond the yellow line when the mean
wind is above 15 m/s or when waves wash over the mole, whatever the reason for the
visit. Between 10 and 15 m/s two people go together. Write your name, the time and the
purpose on the board by the door, and wipe it off when you are back.

## Life jackets

A life jacket is worn beyond the yellow line and in the boat, always and by everyone.
Use the inflatable jackets of 150 newtons; children get the foam jackets on the lower
hooks. Gas cartridges are weighed every six months and replaced if they have lost more
than 2 grams. A jacket that has fired is taken out of use until it has a new cartridge.

## Radio and check calls

Carry a hand-held radio on channel 12. Call the hut every 30 minutes. If a call is
missed, the hut calls back at once, sends a second person after 5 minutes and alerts the
harbour office after 10 minutes. A mobile phone does not replace the radio, because the
concrete of the mole shields its outer end.

## The stilling well

The well is a confined space. Nobody climbs in alone, and nobody climbs in before the
air has been tested. Lower the gas meter to the water for three minutes. Enter only if
oxygen is between 19.5 and 23 per cent and hydrogen sulphide is below 5 ppm. One person
stays at the top and holds the lifeline; that person never climbs down to help but calls
the fire brigade. The longest stay in the well is 20 minutes.

## Electricity

Switch off and lock the breaker before you open a cabinet, keep the key in your pocket,
and test for voltage with the two-pole tester. Only the electrician works on the 400 V
supply of the crane. The residual current devices are tested on the first working day of
each month.

## The old mercury barometer

The barometer of 1911 in the library still holds 1.2 kg of mercury. Do not move or tilt
it. If it breaks, leave the room, open the windows, close the door, and keep everyone
out for at least one hour. Only a person trained with the spill kit goes back in. Never
use a vacuum cleaner, because it spreads the vapour.

## The boat

The boat carries four persons and is not used after sunset. Check the fuel, the bilge
pump and the two flares before leaving. The helmsman wears the kill cord. In water
colder than 10 °C everyone wears a survival suit.

## Someone in the water

1. Shout, point at the person and do not take your eyes off them.
2. Throw the nearest lifebuoy. They hang every 40 m along the mole.
3. Call Mayday on channel 16 or telephone 112.
4. Guide the person to one of the three ladders painted orange.
5. Keep a rescued person lying flat and warm, and do not rub arms or legs.

Never jump in after someone.

## Fire

The hut has two carbon dioxide extinguishers, one by the door and one by the battery
bank. Do not try to put out a burning battery: leave, close the door and call 112. The
assembly point is the flagpole in front of the harbour office.

## Accidents and near misses

Report every accident, and every event that nearly became one, to the duty officer
within 24 hours on the green form. First aid boxes are in the hut, in the workshop and
in the boat; they are checked on the first of March and the first of September.
"""

PAPER = """
# The Ragnvald storm surge of December 2018 at the Skagen Tide Station

I. Holmvig and T. Brandsen, Skagen Tide Station

## Abstract

On 10 December 2018 the storm Ragnvald raised the sea in the harbour to 1.63 m above
station datum, the highest level measured there since 1985. We split the surge into the
parts caused by air pressure, wind and harbour oscillation, and compare it with the
forecast of the harbour model. Wind setup made up 58 per cent of the residual. The model
gave a peak that was 0.22 m too low and 50 minutes too late; a larger drag coefficient
removes most of this error.

{columns}

## 1 Introduction

The astronomical tide at the station is small, with a mean range of 0.34 m. Dangerous
water levels are therefore made by weather. A surge reaches the harbour in two ways: as
a long wave that travels along the North Sea coast, and as a local slope of the water
surface that is held up by the wind. The two are difficult to separate in a single
record, and earlier station reports treated them together. The storm Ragnvald offers a
good opportunity to separate them, because the wind turned quickly while the pressure
was still falling, and because three independent level instruments were working at the
time.

## 2 Data

We use minute means of the radar gauge from 8 to 12 December 2018. Spray blinded the
radar for 14 minutes around the peak, from 04:12 to 04:26 UTC; these minutes were filled
from the float gauge after removing a mean difference of 12 mm. The pressure sensor at
the foot of the mole served as an independent check and agrees with the combined series
to within 21 mm.

Wind and air pressure were measured at the station. The predicted tide was calculated
from 23 harmonic constituents that had been fitted to the years 1999 to 2017. The
residual is the measured level minus the predicted tide.

## 3 Course of the storm

The centre of the low passed about 140 km north of the station. The barometer fell from
1004 hPa at noon on 9 December to 968.4 hPa at 03:50 UTC on the following morning. The
mean wind rose to 27 m/s from west-north-west and the strongest gust was 38 m/s. Between
01:00 and 02:00 UTC the water rose by 0.31 m, the fastest hourly rise in the digital
record.

The level passed the quay edge at the fish market, 1.30 m, at 02:35 UTC. The peak of
1.63 m came at 04:20 UTC, when the predicted tide stood at 0.15 m, so that the residual
was 1.48 m. The quay was dry again at 07:10 UTC. Four and a half hours of flooding
damaged eleven storehouses and the cold store of the fish auction.

## 4 Parts of the surge

### 4.1 Air pressure

The inverse barometer effect raises the sea by about one centimetre for each hectopascal
that the pressure falls below its mean. With a mean of 1013.2 hPa the pressure at the
peak accounts for 0.45 m of the residual.

### 4.2 Wind setup

We estimate the setup from the measured wind stress along the axis of the bay, which is
62 km long and on average 28 m deep. With a drag coefficient of 0.0026 the setup at the
peak is 0.86 m, or 58 per cent of the residual. The estimate depends strongly on the
coefficient: with the value of 0.0021 that the harbour model uses, the setup would be
only 0.69 m.

### 4.3 Harbour oscillation and waves

The remaining 0.17 m are explained by two smaller effects. A spectrum of the residual
shows a seiche of the outer basin with a period of 41 minutes and an amplitude of 0.09
m. It began when the wind turned and was still visible nine hours after the peak. The
last 0.08 m are attributed to wave setup inside the breakwater, which we cannot measure
directly.

## 5 Comparison with the forecast

The harbour model, started at 18:00 UTC on 9 December, predicted a peak of 1.41 m at
05:10 UTC. The forecast was thus 0.22 m too low and 50 minutes too late. We repeated the
run with the observed wind and the larger drag coefficient. The peak then became 1.59 m
at 04:30 UTC, and the root mean square error over the two days fell from 0.13 m to 0.05
m. Observed wind with the old coefficient gave 1.46 m. Most of the improvement therefore
comes from the drag coefficient and not from the wind forecast. The model has no seiche,
since its grid of 400 m does not resolve the outer basin.

## 6 How rare was it?

A generalised extreme value distribution was fitted to the annual maxima of the years
1912 to 2017, after subtracting a linear trend of 0.7 mm a year. The level of 1.63 m has
a return period of 23 years, with a 90 per cent confidence interval from 15 to 41 years.
The record remains 1.81 m, reached in October 1921 and known only from a paper chart.

## 7 Conclusions

We recommend three changes. First, the drag coefficient of the harbour model should be
set to 0.0026 for winds above 20 m/s. Second, the warning threshold for the fish market
should be lowered from 1.20 m to 1.05 m, because at the observed rate of rise the
present threshold leaves the traders less than half an hour. Third, the radar gauge
needs a spray shield: fourteen minutes without data at the very peak of a surge are
fourteen too many. With these changes a storm like Ragnvald would have been announced
about six hours ahead.

## 8 What was done afterwards

The spray shield was mounted in August 2019: a collar of stainless steel, 35 cm long,
around the horn of the radar gauge. It has not changed the calibration. In the three
gales of the following winter the gauge lost two minutes altogether. The new warning
threshold came into force on 1 November 2019, and the fish market now has flood boards
that two people can set up in 25 minutes.

The harbour model received the larger drag coefficient in spring 2020. Its grid is still
too coarse for the outer basin, so the forecasters add 0.09 m to every predicted peak
when the wind is expected to turn by more than 60 degrees within three hours.

## Acknowledgements

We thank the diver and the night watch of the harbour office, who read the tide staff by
torchlight every quarter of an hour until the lamp was washed away.

## References

1. Holmvig, I.: Seiches of the outer basin. Skagen Tide Station Reports 24, 2009.
2. Brandsen, T.: A century of annual maxima. Skagen Tide Station Reports 29, 2016.
3. Lund, S.: Wind stress over a shallow bay. Skagen Tide Station Reports 30, 2017.
"""

HYPHENS = """
astro-nomical baro-meter coef-ficient com-bined confi-dence consti-tuents danger-ous
differ-ence diffi-cult distri-bution esti-mate ex-plained follow-ing fore-cast har-bour
har-monic hecto-pascal improve-ment inde-pendent instru-ments meas-ured
obser-ved oscil-lation oppor-tunity pre-dicted pres-sure recom-mend remain-ing re-peated
resi-dual sepa-rate spec-trum sta-tion store-houses strong-est sub-tracting sur-face
there-fore thresh-old travel-ling break-water calcu-lated
"""

KEYS = """
# Key cabinet list

The cabinet in the duty room holds 26 keys. Key 4 opens the instrument hut, key 9 the
boat house and key 17 the cover of the stilling well. Lost keys are reported the same
day.
"""

LETTER = """
# Letter to the Harbour Board

Skagen, 3 March 1936. Sirs, the ice has carried away the lower two metres of our tide
staff. We ask for 85 kroner for oak planks and for the hire of a diver for one day.

Until the staff is replaced we shall take the readings from the ladder at the coal quay,
which stands 6 cm too high. The observers have been told to subtract the difference.

## Enclosure

Drawing of the new staff, in two parts, and the carpenter's offer of 28 February.

## Reply of the Board

Skagen, 19 March 1936. The Board grants 70 kroner. The diver of the lifeboat society has
offered his day without pay. The old planks are to be handed to the harbour carpenter.
"""

HANDBOOK_TITLE = "Skagen Tide Station Instrument Handbook"
SUMMARY = "# Monthly level summaries 2014 to 2017\n\n" + "\n\n".join(
    f"Month {i % 12 + 1} of {2014 + i // 12}. The mean level was {12 + 7 * i % 11} cm "
    f"above station datum. The highest minute value, {61 + 13 * i % 47} cm, fell on "
    f"day {3 + 5 * i % 24}; the lowest, {-(28 + 11 * i % 23)} cm, on day {4 + 7 * i % 23}. "
    f"The radar gauge delivered {97 + 0.3 * (i % 7):.1f} % of its minute values. The "
    f"observers read the tide staff {58 + i % 5} times and found a mean difference of "
    f"{2 + 5 * i % 9} mm between staff and gauge."
    for i in range(48)
)

DOCUMENTS = [
    ("handbook/instrument-handbook", A5, 10.3, HANDBOOK_TITLE, HANDBOOK),
    ("handbook/safety-rules", A4, 11.5, "Safety rules of the station", SAFETY),
    ("papers/storm-surge-two-column", A4, 11, "The Ragnvald storm surge", PAPER),
    ("broken/truncated", A5, 11, "Monthly level summaries", SUMMARY),
    ("broken/password", A5, 11, "Key cabinet list", KEYS),
    ("broken/scan-image-only", A5, 17, "Letter book 1936", LETTER),
]

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else root / "sample_docs")
