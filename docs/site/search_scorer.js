// How the site's search ranks. The numbers are Sphinx's own; a tutorial whose title has the word comes before all else.
var Scorer = {
  score: ([document, , , , score]) =>
    document.startsWith("docs/tutorials/") && score >= Scorer.title ? score + Scorer.tutorial : score,
  tutorial: 100,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
