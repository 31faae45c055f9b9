// Folds chunks with the AI SDK itself, over its own wire: `node fold_forward.mjs DIRECTORY`, where the package `ai` is
// installed in DIRECTORY. One JSON value a line on standard input, one on standard output:
//   {"chunks": [chunk, ...], "initial": message | null, "mode": null | "resume-replay"}
//        -> {"message": {...}, "stopped": whether the client died before the end}
//   {"wire": [text, ...]}        -> {"taken": [whether a client takes that JSON text as a chunk, ...]}
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const entry = createRequire(pathToFileURL(process.argv[2] + "/")).resolve("ai");
const { parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema } = await import(pathToFileURL(entry));
const LAST = { type: "data-last", data: null };

function parsed(texts) {
  const events = texts.map((text) => text.split("\n").map((line) => `data: ${line}\n`).join("") + "\n");
  const stream = new Blob(events).stream();
  return parseJsonEventStream({ stream, schema: uiMessageChunkSchema });
}

async function taken(texts) {
  const results = [];
  for await (const result of parsed(texts)) results.push(result.success);
  return results;
}

// `readUIMessageStream` cannot be asked for the reset of a resumed replay, so its outcome is set up: nothing but the id
// is left of what was there before the first start.
function asResumed(chunks, initial) {
  const first = chunks.findIndex((chunk) => chunk?.type === "start");
  const empty = { id: initial?.id ?? "", role: "assistant", parts: [] };
  return first < 0 ? [chunks, initial] : [chunks.slice(first), empty];
}

async function folded({ chunks, initial, mode }) {
  if (mode === "resume-replay") [chunks, initial] = asResumed(chunks, initial);
  const texts = [...chunks, LAST].map((chunk) => JSON.stringify(chunk)); // the last one makes the final state visible
  const stream = parsed(texts).pipeThrough(
    new TransformStream({
      transform(result, controller) {
        if (result.success) controller.enqueue(result.value);
        else controller.error(result.error);
      },
    }),
  );
  let message = initial ?? { id: "", role: "assistant", parts: [] };
  const states = readUIMessageStream({ message: structuredClone(message), stream, onError() {} });
  for await (const state of states) message = state;
  const stopped = message.parts.at(-1)?.type !== LAST.type;
  if (!stopped) message.parts.pop();
  return { message, stopped };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const answer = asked.wire ? { taken: await taken(asked.wire) } : await folded(asked);
  process.stdout.write(JSON.stringify(answer) + "\n");
}
