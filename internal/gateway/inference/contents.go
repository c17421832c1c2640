package inference

import (
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/models/catalog"
)

// contentsPrefix begins the paths of Google's clients. Their base URL ends before /v1beta, or /v1.
const contentsPrefix = "/google/"

// mountContents adds the routes of Google's clients (decision 179). What is done with a model stands behind its name.
func (h *Handler) mountContents(rt *web.Router) {
	rt.SetErrorBody(contentsPrefix, contents.ErrorBody)
	rt.Handle("POST /google/{version}/models/{model}", func(w http.ResponseWriter, r *http.Request) error {
		if err := catalog.CheckGoogleAddress(r); err != nil {
			return err
		}
		if err := acceptKey(r, "x-goog-api-key"); err != nil {
			return err
		}
		model, method, _ := strings.Cut(r.PathValue("model"), ":")
		route := plan.Route{Path: "google/" + r.PathValue("model"), Chat: true}
		switch method {
		case "generateContent", "streamGenerateContent":
			stream := method == "streamGenerateContent"
			if stream && r.URL.Query().Get("alt") != "sse" {
				return apierr.InvalidRequest.Errorf("alt: must be sse, as answers are streamed as server-sent events")
			}
			return h.infer(w, r, route, alone(func(body []byte) (shapes.Call, error) {
				return contents.Parse(body, model, stream)
			}))
		case "countTokens":
			return h.countTokens(w, r, route, alone(func(body []byte) (shapes.Call, error) {
				return contents.ParseCount(body, model)
			}), "totalTokens")
		}
		return errMethod(method)
	})
	for path, why := range map[string]string{
		"files":            "files are not stored here; send images as inlineData",
		"cachedContents":   "caches are not kept here; the provider caches the begin of what is sent by itself",
		"cachedContents/":  "caches are not kept here; the provider caches the begin of what is sent by itself",
		"tunedModels":      "models are not tuned here",
		"tunedModels/":     "models are not tuned here",
		"corpora":          "documents are not stored here",
		"fileSearchStores": "documents are not stored here",
		"batches":          "batches are not offered",
		"interactions":     "conversations are not stored here",
	} {
		for _, version := range []string{"v1beta/", "v1/"} {
			rt.SetHint(contentsPrefix+version+path, why+"; "+contentsOffered)
		}
	}
	rt.SetHint(contentsPrefix+"upload/", "files are not stored here; send images as inlineData; "+contentsOffered)
}

const contentsOffered = "here are generateContent, streamGenerateContent and countTokens of " +
	"POST /google/v1beta/models/{model}, and GET /google/v1beta/models."

// errMethod refuses what cannot be done with a model here.
func errMethod(method string) error {
	why := "it is not offered"
	switch method {
	case "embedContent", "batchEmbedContents", "asyncBatchEmbedContent":
		why = "embeddings are made at POST /openai/v1/embeddings"
	case "batchGenerateContent":
		why = "batches are not offered"
	case "predict", "predictLongRunning":
		why = "images and videos are not made here"
	}
	return apierr.NotFound.Errorf("%.60q: %s; %s", method, why, contentsOffered)
}
