/** Numbers, money and times as people read them, in the reader's own language. */

const COUNT = new Intl.NumberFormat();
const SECONDS = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const DAY_OF_YEAR = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function durationWords(durationMs) {
  if (durationMs < 1_000) return `${durationMs} ms`;
  if (durationMs < 60_000) return `${SECONDS.format(durationMs / 1_000)} s`;
  const seconds = Math.round(durationMs / 1_000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function plural(count, word) {
  return `${COUNT.format(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** The Messages API counts what caches gave and took apart from `input_tokens`; people ask how much went in. */
export function usageWords(usage) {
  const read = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens;
  return `${COUNT.format(read)} tokens in, ${COUNT.format(usage.output_tokens)} out`;
}

/** Answers cost fractions of a cent: two digits that say something, at least whole cents. */
export function costWords({ amount, currency, unpriced }) {
  if (unpriced && amount === 0) return "not priced";
  const money = new Intl.NumberFormat(undefined, {
    style: "currency",
    currency,
    minimumFractionDigits: 2,
    maximumFractionDigits: amount >= 1 || amount === 0 ? 2 : Math.min(9, 1 - Math.floor(Math.log10(amount))),
  });
  return unpriced ? `at least ${money.format(amount)}` : money.format(amount);
}

/** The time of a moment of today, else its day. */
export function momentWords(iso, now = new Date()) {
  const moment = new Date(iso);
  if (moment.toDateString() === now.toDateString()) return TIME.format(moment);
  return (moment.getFullYear() === now.getFullYear() ? DAY : DAY_OF_YEAR).format(moment);
}

export function wholeMoment(iso) {
  return WHOLE.format(new Date(iso));
}
