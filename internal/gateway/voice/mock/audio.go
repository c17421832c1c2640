package mock

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// Audio is PCM16, little-endian, mono.
const (
	sampleRate      = 24000
	pieceMS         = 100 // length of one audio event of a reply
	turnSilenceMS   = 500 // so much silence ends the user's turn
	loudAmplitude   = 600 // of 32,767: up to it a sample is silence
	msPerInputToken = 1000 / session.AudioInputPerSecond
)

// speech is how far the user's turn has come.
type speech struct {
	active    bool
	heardMS   int64 // since the call began
	silenceMS int64 // since the user was last loud
	tokens    int64 // of audio in this turn
	itemID    string
}

func (s *speech) stop() { s.active, s.silenceMS, s.tokens, s.itemID = false, 0, 0, "" }

func decodeAudio(text string) (pcm []byte, err error) { return base64.StdEncoding.DecodeString(text) }

func durationMS(pcm []byte) int64 { return int64(len(pcm)/2) * 1000 / sampleRate }

// isLoud reports whether a sample is above silence.
func isLoud(pcm []byte) bool {
	for i := 0; i+1 < len(pcm); i += 2 {
		if v := int16(binary.LittleEndian.Uint16(pcm[i:])); v > loudAmplitude || v < -loudAmplitude {
			return true
		}
	}
	return false
}

// encodeTone renders pieceMS of a sine that begins at fromMS; its pitch follows from the number of
// the word.
func encodeTone(fromMS int64, word int) string {
	hertz := 220 * float64(2+word%5) / 2
	pcm := make([]byte, 2*sampleRate*pieceMS/1000)
	for i := range len(pcm) / 2 {
		t := float64(fromMS)/1000 + float64(i)/sampleRate
		binary.LittleEndian.PutUint16(pcm[2*i:], uint16(int16(6000*math.Sin(2*math.Pi*hertz*t))))
	}
	return base64.StdEncoding.EncodeToString(pcm)
}
