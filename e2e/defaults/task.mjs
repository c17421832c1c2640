// What each program here is given: a model and a task. It does the task with one tool, as the beginning of its client's
// documentation does, and prints the last text. Base URL and key are in the client's own environment variables.
export const model = process.env.MODEL;
export const task = process.argv[2];
export const streams = process.env.STREAM === "1"; // asks for streams, or for whole answers
export const weather = ({ city }) => `It is fine in ${city}.`;
