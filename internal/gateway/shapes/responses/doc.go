// Package responses is the client's side of OpenAI's Responses API (POST /openai/v1/responses). It reads a request into
// the canonical one, and writes the canonical response as a response object, or as the typed events of a stream. It is
// stateless: nothing is stored, and a client sends the whole conversation each time. Reasoning travels in it as items
// whose encrypted_content only the gateway reads. It is pure.
package responses
