/** Keeps a scrolled element at its end while it grows, as long as the reader stays there. */

import { useCallback, useLayoutEffect, useRef, useState } from "../vendor/preact-hooks.mjs";

/** How far from the end, in pixels, still counts as being there. */
const NEAR = 48;

/**
 * @param {boolean} begins whether the reader is at the end from the start
 * @returns refs for the scrolled element and its content; whether the reader is at the end; the way there
 */
export function useEnd(begins) {
  const scrolled = useRef(null);
  const content = useRef(null);
  const [isAtEnd, setAtEnd] = useState(true);
  const stays = useRef(begins);

  useLayoutEffect(() => {
    const place = scrolled.current;
    const look = () => {
      stays.current = place.scrollHeight - place.scrollTop - place.clientHeight < NEAR;
      setAtEnd(stays.current);
    };
    const follow = new ResizeObserver(() => {
      if (stays.current) place.scrollTop = place.scrollHeight;
      else look();
    });
    follow.observe(content.current);
    follow.observe(place);
    place.addEventListener("scroll", look, { passive: true });
    return () => {
      follow.disconnect();
      place.removeEventListener("scroll", look);
    };
  }, []);

  const goToEnd = useCallback(() => {
    stays.current = true;
    scrolled.current.scrollTop = scrolled.current.scrollHeight;
  }, []);
  return { scrolled, content, isAtEnd, goToEnd };
}
