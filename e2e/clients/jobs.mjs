// The protocol between the Go test and the clients: a job is one line of JSON on standard input, and its result one
// line on standard output. Each job says what is asked in neutral terms; a client says it in its SDK's terms.
import readline from "node:readline";
import * as z from "zod";

// The tools that a job may offer, and what each call of them returns.
export const tools = {
  weather: { description: "Tells the weather.", input: z.object({ city: z.string() }) },
  time: { description: "Tells the time.", input: z.object({}) },
};
export const toolResult = "fine";

// The object that a job with a schema asks for.
export const Forecast = z.object({ city: z.string(), degrees: z.number().int() });

// serve answers jobs by the function of their API, until the input ends. A function fills in its result bit by bit, so
// that the result of a failed job has what came before the failure.
export async function serve(apis) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    const result = { text: "", finish: "", calls: [], rounds: 0, input: 0, output: 0, charged: [] };
    try {
      await apis[job.api](job, result);
    } catch (error) {
      result.error = describeError(error);
    }
    process.stdout.write(JSON.stringify(result) + "\n");
  }
}

// describeError returns what a program sees of an error: its status, if there is one, and its message.
export function describeError(error) {
  const cause = error.lastError ?? error;
  return {
    kind: cause.constructor.name,
    status: cause.status ?? cause.statusCode ?? 0,
    code: cause.code ?? cause.error?.error?.type ?? "",
    message: cause.message ?? String(cause),
  };
}
