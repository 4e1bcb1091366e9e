"""Escaping for pdflatex: any text as ASCII that pdflatex prints and does not obey.

Letters with one accent, the usual symbols and Greek become commands of LaTeX (T1 fonts and
textcomp). Any other character becomes its code point, such as [U+05D0].
"""

from __future__ import annotations

import unicodedata

# Also characters that would join their neighbour ("<<", "?`"), that LaTeX looks for after the end
# of a row ("[", "*"), or that some languages of babel make commands.
_ASCII = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}
# These join only a copy of themselves.
_DOUBLED = "-,'"
_SYMBOLS = {
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    "\N{MULTIPLICATION SIGN}": r"\texttimes{}",
    "\N{DIVISION SIGN}": r"\textdiv{}",
    "\N{PLUS-MINUS SIGN}": r"\textpm{}",
    "\N{MICRO SIGN}": r"\textmu{}",
    "\N{DEGREE SIGN}": r"\textdegree{}",
    "\N{MIDDLE DOT}": r"\textperiodcentered{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\textellipsis{}",
    "\N{BULLET}": r"\textbullet{}",
    "\N{SECTION SIGN}": r"\textsection{}",
    "\N{COPYRIGHT SIGN}": r"\textcopyright{}",
    "\N{REGISTERED SIGN}": r"\textregistered{}",
    "\N{TRADE MARK SIGN}": r"\texttrademark{}",
    "\N{EURO SIGN}": r"\texteuro{}",
    "\N{SUPERSCRIPT ONE}": r"\textsuperscript{1}",
    "\N{SUPERSCRIPT TWO}": r"\textsuperscript{2}",
    "\N{SUPERSCRIPT THREE}": r"\textsuperscript{3}",
    "\N{LEFT DOUBLE QUOTATION MARK}": r"\textquotedblleft{}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": r"\textquotedblright{}",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "\N{RIGHTWARDS ARROW}": r"\textrightarrow{}",
    "\N{LEFTWARDS ARROW}": r"\textleftarrow{}",
    "\N{GREATER-THAN OR EQUAL TO}": r"\ensuremath{\geq}",
    "\N{LESS-THAN OR EQUAL TO}": r"\ensuremath{\leq}",
    "\N{ALMOST EQUAL TO}": r"\ensuremath{\approx}",
    "\N{NOT EQUAL TO}": r"\ensuremath{\neq}",
    "\N{INFINITY}": r"\ensuremath{\infty}",
    "\N{SQUARE ROOT}": r"\ensuremath{\surd}",
    "\N{LATIN SMALL LETTER SHARP S}": r"\ss{}",
    "\N{LATIN SMALL LETTER AE}": r"\ae{}",
    "\N{LATIN CAPITAL LETTER AE}": r"\AE{}",
    "\N{LATIN SMALL LIGATURE OE}": r"\oe{}",
    "\N{LATIN CAPITAL LIGATURE OE}": r"\OE{}",
    "\N{LATIN SMALL LETTER O WITH STROKE}": r"\o{}",
    "\N{LATIN CAPITAL LETTER O WITH STROKE}": r"\O{}",
    "\N{LATIN SMALL LETTER L WITH STROKE}": r"\l{}",
    "\N{LATIN CAPITAL LETTER L WITH STROKE}": r"\L{}",
    "\N{LATIN SMALL LETTER DOTLESS I}": r"\i{}",
    "\N{LATIN SMALL LETTER THORN}": r"\th{}",
    "\N{LATIN CAPITAL LETTER THORN}": r"\TH{}",
    "\N{LATIN SMALL LETTER ETH}": r"\dh{}",
    "\N{LATIN CAPITAL LETTER ETH}": r"\DH{}",
}
# Letters that LaTeX has. omicron is an o, and capitals that look like Latin ones have no command.
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi"),
    *("omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi"),
    "Omega",
)
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": r"\`",
    "\N{COMBINING ACUTE ACCENT}": r"\'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": r"\^",
    "\N{COMBINING TILDE}": r"\~",
    "\N{COMBINING DIAERESIS}": r"\"",
    "\N{COMBINING MACRON}": r"\=",
    "\N{COMBINING DOT ABOVE}": r"\.",
    "\N{COMBINING BREVE}": r"\u",
    "\N{COMBINING CARON}": r"\v",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": r"\H",
    "\N{COMBINING RING ABOVE}": r"\r",
    "\N{COMBINING CEDILLA}": r"\c",
}


def _greek() -> dict[str, str]:
    found = {}
    for name in _GREEK:
        size = "CAPITAL" if name[0].isupper() else "SMALL"
        spelt = "LAMDA" if name.lower() == "lambda" else name.upper()
        letter = unicodedata.lookup(f"GREEK {size} LETTER {spelt}")
        found[letter] = rf"\ensuremath{{\{name}}}"
    return found


_KNOWN = {**_ASCII, **_SYMBOLS, **_greek()}


def tex(text: str) -> str:
    """Return the text for pdflatex. text: a line without control characters, of any script."""
    return "".join(
        f"{{}}{letter}" if letter == before and letter in _DOUBLED else _letter(letter)
        for before, letter in zip(f" {text}", text, strict=False)
    )


def number(text: str) -> str:
    """Return a figure, perhaps with its interval, for pdflatex: its hyphens become minus signs."""
    return tex(text.replace("-", "\N{MINUS SIGN}"))


def _letter(letter: str) -> str:
    if letter in _KNOWN:
        return _KNOWN[letter]
    if letter.isascii() and letter.isprintable():
        return letter
    parts = unicodedata.normalize("NFD", letter)
    base, mark = parts[0], parts[1:]
    if mark in _ACCENTS and base.isascii() and base.isalpha():
        return f"{_ACCENTS[mark]}{{{base}}}"
    return f"{{[}}U+{ord(letter):04X}{{]}}"
