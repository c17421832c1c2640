package voice

import (
	"context"
	"errors"
	"io"

	"github.com/coder/websocket"
)

// Memory is the memory of the node, which the calls and the sessions of developers share (decision 131).
type Memory interface {
	// TakeMemory counts bytes of a developer, or refuses them with 503.
	TakeMemory(developerID string, bytes int64) error
	// CountMemory counts bytes whatever is left, and gives them back if they are negative.
	CountMemory(developerID string, bytes int64)
}

// noMemory counts nothing, for tests.
type noMemory struct{}

func (noMemory) TakeMemory(string, int64) error { return nil }
func (noMemory) CountMemory(string, int64)      {}

const (
	// sessionBytes is what a session takes that runs, and a socket of an app: goroutines, buffers, its state, and
	// messages of usual length.
	sessionBytes = 128 << 10
	// usualMessage is the length up to which a message is part of sessionBytes.
	usualMessage = 32 << 10
	// messageFactor is what a byte of a longer message takes: itself, its decoded values, and what they become.
	messageFactor = 4
)

// socketMemory is what a socket takes of the memory of a node. Only its reader uses it.
type socketMemory struct {
	memory      Memory
	developerID string
	base        int64 // bytes that are counted as long as it is open
	long        int64 // bytes that are counted for the message that is handled
}

// openSocketMemory counts a socket of a developer's app, or refuses it with 503. Its caller must call close.
func (n *node) openSocketMemory(developerID string) (*socketMemory, error) {
	if err := n.memory.TakeMemory(developerID, sessionBytes); err != nil {
		return nil, err
	}
	return &socketMemory{memory: n.memory, developerID: developerID, base: sessionBytes}, nil
}

func (s *socketMemory) close() { s.memory.CountMemory(s.developerID, -s.base-s.long) }

// errNoRoom says that a message was refused because the node has no memory for it. Its socket is closed.
var errNoRoom = errors.New("voice: no memory for a message")

// read reads the next message. Of a long one, the bytes are counted as they arrive, and until it is handled and read is
// called again. If there is no memory for them, the socket closes with 1013.
func (s *socketMemory) read(ctx context.Context, ws *websocket.Conn) (websocket.MessageType, []byte, error) {
	s.memory.CountMemory(s.developerID, -s.long)
	s.long = 0
	kind, from, err := ws.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	data := make([]byte, 0, 512)
	for {
		if len(data) == cap(data) {
			size := int64(2 * cap(data))
			if more := messageFactor*size - s.long; size > usualMessage && more > 0 {
				if s.memory.TakeMemory(s.developerID, more) != nil {
					closeSocket(ws, websocket.StatusTryAgainLater, "no memory is left for this message; try again")
					return 0, nil, errNoRoom
				}
				s.long += more
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return kind, data, nil
		} else if err != nil {
			return 0, nil, err
		}
	}
}
