// The calls that a page follows: those that the host remembers, then each as it is answered, the newest first.
import { useEvents } from "./api.js";
import { seenCalls } from "./keyboard.js";
import { useLayoutEffect, useRef, useState } from "./ui.js";

const KEPT = 2_000;

/** The calls, how many more were made, the state of the stream, and `clear`. While it is paused, new ones wait. */
export function useCalls(paused) {
  const [calls, setCalls] = useState([]);
  const [skipped, setSkipped] = useState(0);
  const waiting = useRef([]);
  const known = useRef(new Set());
  const frame = useRef(0);
  const state = useEvents("/console/calls", ({ event, data }) => {
    if (event !== "calls") return;
    // Calls of other processes come later than those of this one, and all of them again when the stream is opened again.
    const fresh = data.calls.filter((call) => !known.current.has(call.id));
    for (const call of fresh) known.current.add(call.id);
    waiting.current.push(...fresh);
    if (data.skipped) setSkipped((n) => n + data.skipped);
    flush();
  });
  const hold = useRef(paused);
  hold.current = paused;
  const flush = () => {
    if (frame.current || hold.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      const fresh = waiting.current.splice(0).sort(newestFirst);
      if (fresh.length) setCalls((before) => (before.length && newestFirst(fresh.at(-1), before[0]) > 0 ? [...fresh, ...before].sort(newestFirst) : [...fresh, ...before]).slice(0, KEPT));
      if (known.current.size > 2 * KEPT) known.current = new Set([...known.current].slice(-KEPT));
    });
  };
  useLayoutEffect(() => { if (!paused) flush(); }, [paused]);
  useLayoutEffect(() => () => cancelAnimationFrame(frame.current), []);
  seenCalls.newest = calls.slice(0, 500);
  return { calls, skipped, state, clear: () => { setCalls([]); setSkipped(0); } };
}

const newestFirst = (a, b) => b.ts - a.ts || b.id - a.id;
