package session

import (
	"strings"
	"time"
)

// relayedTypes are the provider's events that the app gets unchanged (contract §4.4).
var relayedTypes = []string{
	"response.function_call_arguments.done", "response.output_audio_transcript.done", "response.output_text.done",
	"input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "response.created", "error",
	transcriptCompleted, transcriptFailed, transcriptEvents + "delta",
}

// The events of transcripts, and their ends.
const (
	transcriptEvents    = "conversation.item.input_audio_transcription."
	transcriptCompleted = transcriptEvents + "completed"
	transcriptFailed    = transcriptEvents + "failed"
)

// handleProviderEvent applies an event of the sideband.
func (m *machine) handleProviderEvent(e *FromProvider) {
	if m.Status != Live {
		return
	}
	event := &e.content
	if event.Type == "error" && event.Error != nil && m.isOwnEventID(event.Error.EventID) {
		m.updateRefused(event.Error)
		return
	}
	// Without a transcription of the session, a browser has switched one on: the user has not allowed it.
	if len(e.Raw) > 0 && (m.Config.Transcription != nil || !strings.HasPrefix(event.Type, transcriptEvents)) {
		m.addActions(ToApp{Event: e.Raw})
	}
	if event.Unreadable {
		m.addActions(Unmetered{Event: event.Type})
		return
	}
	if r := m.findReply(event.ResponseID); r != nil {
		r.EventUS = m.nowUS
	}
	switch event.Type {
	case "session.updated":
		m.checkConfig(event.Session)
	case "input_audio_buffer.speech_started":
		m.speechStarted(readMilliseconds(event.AudioStartMS))
		m.transcriptBegun(event.ItemID)
	case "input_audio_buffer.speech_stopped":
		m.transcriptSpoken(event.ItemID, m.speechStopped(readMilliseconds(event.AudioEndMS)))
	case transcriptCompleted:
		if m.Config.Transcription == nil {
			m.transcribedUnasked(event.ItemID)
			return
		}
		m.transcriptDone(event.ItemID, event.Usage, event.Transcript)
	case transcriptFailed:
		m.transcriptFailed(event.ItemID)
	case "response.created":
		m.replyCreated(event.Response)
	case "response.output_audio_transcript.delta":
		m.AudioHeard = true
		m.textReported(event.ResponseID, event.Delta)
	case "response.output_text.delta", "response.function_call_arguments.delta":
		m.textReported(event.ResponseID, event.Delta)
	case "output_audio_buffer.started":
		m.playbackStarted(event.ResponseID)
	case "output_audio_buffer.stopped", "output_audio_buffer.cleared":
		m.playbackEnded(event.ResponseID)
	case "response.done":
		m.replyDone(event.Response)
	case "conversation.item.added":
		m.itemAdded(event.Item)
		m.placeItem(event)
	case "conversation.item.truncated":
		m.itemTruncated(event.ItemID)
	case "conversation.item.deleted":
		m.itemDeleted(event.ItemID)
	case "error":
		if event.Error != nil && event.Error.Code == "session_expired" {
			m.beginEnd(ProviderError, true)
		}
	}
}

func (m *machine) speechStarted(startMS int64) {
	m.LastActivityUS, m.SpeakingUS, m.SpeechStartMS = m.nowUS, m.nowUS, startMS
}

// speechStopped counts the user's speech as input of the next reply: by our clock, or by the
// provider's, whichever says more.
func (m *machine) speechStopped(endMS int64) (spoken time.Duration) {
	if m.SpeakingUS > 0 {
		spokenMS := max(milliseconds(m.nowUS-m.SpeakingUS), min(endMS-m.SpeechStartMS, m.MaxDuration.Milliseconds()))
		spoken = time.Duration(spokenMS) * time.Millisecond
		m.UserSpeech += spoken
	}
	m.LastActivityUS, m.SpeakingUS = m.nowUS, 0
	return spoken
}
