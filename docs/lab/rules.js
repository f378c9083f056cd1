// The rules that a moment follows, each with its place in the page of the protocol.
const PAGE = "../protocol/README.html";
const RULES = [
  ["pre-votes", "The rule of pre-votes.", /is asked by node \d+ whether it would vote|pre vote|Prospective/],
  ["votes", "The rule of votes.", /votes? for node \d+ in epoch|vote for|elected/],
  ["divergence", "The rule of diverging logs.", /loses what follows offset/],
  ["fetch", "The rule of Fetch.", /Fetch from|has flushed/],
  ["watermark", "The rule of the watermark.", /answer of \d+ to Fetch/],
  ["voters", "The rule of changes of voters.", /(?:Add|Remove|Update)RaftVoter|visitor: (?:add|remove)-voter/],
];

export function rulesOf(moment, reason) {
  const told = [moment?.what ?? "", ...(moment?.details ?? []), reason].join("\n");
  return RULES.filter(([, , names]) => names.test(told)).map(([anchor, text]) => ({ href: `${PAGE}#${anchor}`, text }));
}
