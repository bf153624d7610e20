"""The known units, each defined by earlier ones.

Factors are exact by definition where they are not marked. Sources: the SI brochure
(https://www.bipm.org/en/publications/si-brochure), NIST Handbook 44, appendix C
(https://www.nist.gov/pml/owm/nist-handbook-44-current-edition), IEC 80000-13 for data. Gallons, pints, cups and tons
are those of the United States; the British ones are called imperial.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

Prefixes = Mapping[tuple[str, str], float]
"""Symbol and name of a prefix -> its factor."""


class Row(NamedTuple):
    kind: str
    names: str
    """Symbols, a bar, then names in words: `m | metre, meter`. Plurals in s come by themselves."""

    definition: str


NO_PREFIXES: Prefixes = MappingProxyType({})
LARGE_PREFIXES: Prefixes = MappingProxyType(
    {
        ("k", "kilo"): 10**3,
        ("M", "mega"): 10**6,
        ("G", "giga"): 10**9,
        ("T", "tera"): 10**12,
        ("P", "peta"): 10**15,
    }
)
DECIMAL_PREFIXES: Prefixes = MappingProxyType(
    {
        ("p", "pico"): 1e-12,
        ("n", "nano"): 1e-9,
        ("\N{MICRO SIGN}", "micro"): 1e-6,
        ("u", "micro"): 1e-6,
        ("m", "milli"): 1e-3,
        ("c", "centi"): 1e-2,
        ("d", "deci"): 1e-1,
        ("h", "hecto"): 10**2,
        **LARGE_PREFIXES,
    }
)
DATA_PREFIXES: Prefixes = MappingProxyType(
    {
        **LARGE_PREFIXES,
        ("Ki", "kibi"): 2**10,
        ("Mi", "mebi"): 2**20,
        ("Gi", "gibi"): 2**30,
        ("Ti", "tebi"): 2**40,
        ("Pi", "pebi"): 2**50,
    }
)

_WITH_DECIMAL_PREFIXES = (
    Row("length", "m | metre, meter", "m"),
    Row("length", "pc | parsec", "3.0856775814913673e16 m"),  # rounded
    Row("volume", "L l | litre, liter", "0.001 m^3"),
    Row("mass", "g | gram, gramme", "0.001 kg"),
    Row("time", "s sec | second", "s"),
    Row("frequency", "Hz | hertz", "1/s"),
    Row("temperature", "K | kelvin", "K"),
    Row("angle", "rad | radian", "rad"),
    Row("force", "N | newton", "kg*m/s^2"),
    Row("pressure", "Pa | pascal", "N/m^2"),
    Row("pressure", "bar | bar", "100000 Pa"),
    Row("energy", "J | joule", "N*m"),
    Row("energy", "cal | calorie", "4.184 J"),
    Row("energy", "eV | electronvolt", "1.602176634e-19 J"),
    Row("power", "W | watt", "J/s"),
    Row("energy", "Wh | watt hour", "3600 J"),
    Row("current", "A | ampere, amp", "A"),
    Row("charge", "| coulomb", "A*s"),
    Row("charge", "Ah | ampere hour, amp hour", "3600 A*s"),
    Row("voltage", "V | volt", "W/A"),
    Row("resistance", "\N{GREEK CAPITAL LETTER OMEGA} | ohm", "V/A"),
)
_WITH_DATA_PREFIXES = (
    Row("data", "b bit | bit", "bit"),
    Row("data", "B | byte, octet", "8 bit"),
    Row("data rate", "bps", "bit/s"),
)
_WITHOUT_PREFIXES = (
    Row("length", "in | inch, inches", "2.54 cm"),
    Row("length", "ft | foot, feet", "12 in"),
    Row("length", "yd | yard", "3 ft"),
    Row("length", "mi | mile", "5280 ft"),
    Row("length", "nmi | nautical mile", "1852 m"),
    Row("length", "au AU | astronomical unit", "149597870700 m"),
    Row("length", "ly | light year", "9460730472580800 m"),
    Row("area", "ha | hectare", "10000 m^2"),
    Row("area", "| acre", "43560 ft^2"),
    Row("volume", "gal | gallon", "231 in^3"),
    Row("volume", "qt | quart", "gal/4"),
    Row("volume", "pt | pint", "gal/8"),
    Row("volume", "| cup", "gal/16"),
    Row("volume", "floz | fluid ounce, fl oz", "gal/128"),
    Row("volume", "tbsp | tablespoon", "gal/256"),
    Row("volume", "tsp | teaspoon", "gal/768"),
    Row("volume", "bbl | barrel", "42 gal"),
    Row("volume", "| imperial gallon", "4.54609 L"),
    Row("volume", "| imperial pint", "4.54609 L / 8"),
    Row("volume", "| imperial fluid ounce", "4.54609 L / 160"),
    Row("mass", "t | tonne, metric ton", "1000 kg"),
    Row("mass", "lb lbs | pound", "0.45359237 kg"),
    Row("mass", "oz | ounce", "lb/16"),
    Row("mass", "st | stone", "14 lb"),
    Row("mass", "| ton, short ton", "2000 lb"),
    Row("mass", "| imperial ton, long ton", "2240 lb"),
    Row("mass", "gr | grain", "lb/7000"),
    Row("mass", "ozt | troy ounce", "480 gr"),
    Row("mass", "ct | carat", "0.2 g"),
    Row("time", "min | minute", "60 s"),
    Row("time", "h hr hrs | hour", "60 min"),
    Row("time", "d | day", "24 h"),
    Row("time", "wk | week", "7 d"),
    Row("time", "yr | year, julian year", "365.25 d"),
    Row("time", "| month", "365.25 d / 12"),  # on average
    Row("speed", "mph", "mi/h"),
    Row("speed", "kph kmh", "km/h"),
    Row("speed", "kn kt | knot", "nmi/h"),
    Row("frequency", "rpm", "1/min"),
    Row("temperature", "R | rankine", "5/9 * 1 K"),
    Row("angle", "\N{DEGREE SIGN} deg | degree", "pi/180 * 1 rad"),
    Row("angle", "arcmin | arcminute", "deg/60"),
    Row("angle", "arcsec | arcsecond", "deg/3600"),
    Row("angle", "rev | revolution, full turn", "2 pi * 1 rad"),
    Row("force", "lbf | pound force", "lb * 9.80665 m/s^2"),
    Row("force", "kgf | kilogram force", "9.80665 N"),
    Row("pressure", "atm | atmosphere", "101325 Pa"),
    Row("pressure", "psi", "lbf/in^2"),
    Row("pressure", "mmHg | millimetre of mercury", "133.322387415 Pa"),
    Row("pressure", "inHg | inch of mercury", "25.4 mmHg"),
    Row("pressure", "| torr", "atm/760"),
    Row("energy", "BTU Btu | british thermal unit", "1055.05585262 J"),
    Row("power", "hp | horsepower", "550 ft*lbf/s"),
    Row("power", "PS | metric horsepower", "75 kgf*m/s"),
    Row("fuel economy", "mpg", "mi/gal"),
)

UNITS: tuple[tuple[Prefixes, tuple[Row, ...]], ...] = (
    (DECIMAL_PREFIXES, _WITH_DECIMAL_PREFIXES),
    (DATA_PREFIXES, _WITH_DATA_PREFIXES),
    (NO_PREFIXES, _WITHOUT_PREFIXES),
)

OFFSETS: tuple[tuple[str, float, float], ...] = (
    ("\N{DEGREE SIGN}C C degC | celsius, degree celsius, degrees celsius, centigrade", 1, 273.15),
    ("\N{DEGREE SIGN}F F degF | fahrenheit, degree fahrenheit, degrees fahrenheit", 5 / 9, 459.67 * 5 / 9),
)
"""Names, size of a degree in K, and where the scale's zero lies in K."""
