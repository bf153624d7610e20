/** An error as a person needs it: from the gateway's error body, or in our own words. */

export class Failure extends Error {
  /** @param {{code: string, message: string, status?: number, requestId?: string | null, retryable?: boolean}} given */
  constructor({ code, message, status = 0, requestId = null, retryable = false }) {
    super(message);
    this.name = "Failure";
    this.code = code;
    this.status = status;
    this.requestId = requestId;
    this.retryable = retryable;
  }
}

/** The connection did not come about, or broke: trying again may help. */
export function unreachable(message = "The gateway does not answer.") {
  return new Failure({ code: "UNREACHABLE", message, retryable: true });
}

/** From the body `{"error": {...}}` that the gateway answers with and sends as an `error` frame. */
export function fromBody({ error }, status = 0) {
  return new Failure({ ...error, status });
}

/** From an answer that is none of success; a proxy in between may have written it, in words of its own. */
export async function fromResponse(response) {
  const text = await response.text();
  try {
    return fromBody(JSON.parse(text), response.status);
  } catch {
    const { status } = response;
    const message = `The answer was ${status} ${response.statusText}`.trimEnd();
    return new Failure({ code: `HTTP_${status}`, message, status, retryable: status >= 500 });
  }
}

/** Whatever was thrown, as a failure: what is no `Failure` is a fault of this page, and is told as one. */
export function asFailure(thrown) {
  if (thrown instanceof Failure) return thrown;
  console.error(thrown);
  return new Failure({ code: "PAGE_ERROR", message: `This page made a mistake: ${thrown?.message ?? thrown}` });
}
