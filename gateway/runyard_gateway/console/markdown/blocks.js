/** Markdown as a list of blocks: while an answer grows, only its last block is parsed again. */

import { Marked } from "../vendor/marked.mjs";

const markdown = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    // Markup in a model's text is text: it is shown as it was written.
    html: ({ text, block }) => (block ? `<p>${escaped(text)}</p>` : escaped(text)),
    // A picture would be fetched from wherever the model says: it is a link that a person may follow.
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

/**
 * @param {string} text
 * @returns {{source: string, markup: () => string}[]} equal sources have equal markup; it is not safe yet
 */
export function blocksOf(text) {
  const tokens = markdown.lexer(text);
  const links = JSON.stringify(tokens.links); // a link's address may be told at the end of the text
  return tokens
    .filter((token) => token.type !== "space")
    .map((token) => ({ source: `${token.raw}\0${links}`, markup: () => markdown.parser([token]) }));
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
