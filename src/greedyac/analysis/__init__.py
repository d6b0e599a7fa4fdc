"""What results mean: from a store to selection, sensitivity, comparison, figures, and a report. Reads only a store."""

from greedyac.analysis import figures, sensitivity, stats
from greedyac.analysis.gallery import gallery
from greedyac.analysis.load import Results, load
from greedyac.analysis.page import make_page
from greedyac.analysis.report import Analysis, analyse, tables
from greedyac.analysis.second_stage import fresh_seeds, second_stage
from greedyac.analysis.select import Choice, choose, reported
from greedyac.analysis.words import summary

__all__ = [
    "Analysis",
    "Choice",
    "Results",
    "analyse",
    "choose",
    "figures",
    "fresh_seeds",
    "gallery",
    "load",
    "make_page",
    "reported",
    "second_stage",
    "sensitivity",
    "stats",
    "summary",
    "tables",
]
