package voice

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// scrubErrors cleans what an event of the provider says of errors, as the 502 of an offer is: it may name the
// operator's account. What is wrong with that is an alarm, and the app reads only that its session is not served.
// Everything else of the event stays.
func (r *runner) scrubErrors(event []byte) []byte {
	if !bytes.Contains(event, []byte(`"error"`)) {
		return event
	}
	event = editMember(event, []string{"error"}, r.scrubError)
	return editMember(event, []string{"response", "status_details", "error"}, r.scrubError)
}

// scrubError cleans an error, which may be just its message.
func (r *runner) scrubError(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return replaceText(raw, upstream.CleanMessage(text))
	}
	e := r.node.provider.MakeRefusal("", http.StatusBadRequest, nil, mustJSON(map[string]any{"error": raw}))
	if e.Alarm != "" {
		e.Refusal = "the provider does not serve this session"
		if !r.terms.DeveloperKey {
			r.node.biller.metrics.RaiseAlarm(e.Alarm, r.terms.Provider)
			r.node.log.Error("provider alarm", "provider", r.terms.Provider, "alarm", e.Alarm, "session_id", r.id)
		}
	}
	return editMember(raw, []string{"message"}, func(message json.RawMessage) json.RawMessage {
		return replaceText(message, e.Refusal)
	})
}

// replaceText replaces a JSON string, unless it is empty or none.
func replaceText(raw json.RawMessage, with string) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "" || text == with {
		return raw
	}
	return mustJSON(with)
}

// removeSpeech removes the audio of an item from an event: the user has allowed no more than transcripts, if that. The
// provider sends it with an item that was retrieved.
func removeSpeech(event []byte) []byte {
	if !bytes.Contains(event, []byte(`"audio"`)) {
		return event
	}
	return editMember(event, []string{"item", "content"}, func(raw json.RawMessage) json.RawMessage {
		var parts []map[string]json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return raw
		}
		had := false
		for _, p := range parts {
			_, ok := p["audio"]
			had = had || ok
			delete(p, "audio")
		}
		if !had {
			return raw
		}
		return mustJSON(parts)
	})
}

// editMember returns a JSON object in which edit has replaced the member at a path, and raw itself if there is none or
// edit changes nothing.
func editMember(raw json.RawMessage, path []string, edit func(json.RawMessage) json.RawMessage) json.RawMessage {
	if len(path) == 0 {
		return edit(raw)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object[path[0]] == nil {
		return raw
	}
	edited := editMember(object[path[0]], path[1:], edit)
	if bytes.Equal(edited, object[path[0]]) {
		return raw
	}
	object[path[0]] = edited
	return mustJSON(object)
}
