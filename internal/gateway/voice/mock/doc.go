// Package mock is the provider of mock sessions (decision 046): a canned voice that speaks OpenAI
// Realtime events over one WebSocket, an event a text message, audio as base64 of PCM16, 24 kHz,
// mono. What it says follows only from what it received. It takes part in a session like the real
// provider: the session supervises it through a sideband, and it knows nothing of money.
package mock
