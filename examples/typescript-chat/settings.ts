import { existsSync, readFileSync } from "node:fs";

/** The settings, from the environment or from the file .env of the working directory. The environment wins. */
export const settings = read();

function read() {
  const lines = existsSync(".env") ? readFileSync(".env", "utf8").split("\n") : [];
  const found = lines.map((line) => /^\s*(\w+)=(.*)$/.exec(line.trim())).filter((match) => match !== null);
  const env: Record<string, string | undefined> =
    { ...Object.fromEntries(found.map(([, name, value]) => [name!, value!])), ...process.env };
  const need = (name: string) => {
    const value = env[name];
    if (value) return value;
    console.error(`Set ${name}, in the environment or in .env.`);
    return process.exit(2);
  };
  const PORT = Number(env["PORT"] ?? 3000);
  const ORIGIN = `http://localhost:${PORT}`;
  return {
    PORT,
    ORIGIN,
    BASE_URL: env["BASE_URL"] ?? "http://localhost:8080",
    CLIENT_ID: need("CLIENT_ID"),
    CLIENT_SECRET: need("CLIENT_SECRET"),
    REDIRECT_URI: env["REDIRECT_URI"] ?? `${ORIGIN}/callback`,
    MODEL: env["MODEL"] ?? "gpt-6-luna",
    DATA: env["DATA"] ?? "data",
  };
}
