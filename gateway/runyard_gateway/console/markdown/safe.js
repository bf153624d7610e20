/** Sanitizes markup that a model wrote: it runs nothing, loads nothing, and cannot imitate the page. */

import DOMPurify from "../vendor/purify.mjs";

const RULES = Object.freeze({
  // What markdown makes, and nothing else. No img: it would load, and so tell, at once.
  ALLOWED_TAGS: [
    ...["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code"],
    ...["em", "strong", "del", "a", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "#text"],
  ],
  ALLOWED_ATTR: ["href", "title", "start", "align"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["title", "start", "align"], // those hold no address, and are not held against the expression
  RETURN_DOM_FRAGMENT: true,
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

/** @param {string} markup @returns {DocumentFragment} */
export function safeFragment(markup) {
  return DOMPurify.sanitize(markup, RULES);
}
