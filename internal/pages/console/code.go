package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// imagePlaceholder stands in for the bytes of an image, which would bury the rest of the code.
const imagePlaceholder = "https://app.example.com/image.png"

// callCode returns a chat completion in four languages: with curl, and with the SDKs.
func callCode(baseURL, feature string, request map[string]json.RawMessage) []ui.Code {
	body := map[string]any{}
	for name, text := range request {
		var value any
		if json.Unmarshal(text, &value) == nil && name != "stream" && name != "stream_options" {
			body[name] = replaceImages(value)
		}
	}
	model, _ := body["model"].(string)
	rest := maps.Clone(body)
	delete(rest, "model")
	return []ui.Code{
		{Language: "curl", Text: curlCode(baseURL, feature, body)},
		{Language: "TypeScript", Text: typeScriptCode(baseURL, feature, model, rest)},
		{Language: "Python", Text: pythonCode(baseURL, feature, model, rest)},
		{Language: "Go", Text: goCode(baseURL, feature, model, rest)},
	}
}

// replaceImages returns a value in which each data URL is replaced.
func replaceImages(value any) any {
	switch value := value.(type) {
	case string:
		if strings.HasPrefix(value, "data:") {
			return imagePlaceholder
		}
	case []any:
		for i := range value {
			value[i] = replaceImages(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = replaceImages(value[name])
		}
	}
	return value
}

// formatJSON returns a value as indented JSON, whose lines after the first begin with prefix.
func formatJSON(value any, prefix string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, "  ")
	if err := e.Encode(value); err != nil {
		panic("console: a value from JSON is always JSON: " + err.Error())
	}
	// JavaScript reads U+2028 and U+2029 in a string since 2019, other tools do not.
	return strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`).Replace(strings.TrimSuffix(b.String(), "\n"))
}

func curlCode(baseURL, feature string, body map[string]any) string {
	streamed := maps.Clone(body)
	streamed["stream"] = true
	streamed["stream_options"] = map[string]any{"include_usage": true}
	header := ""
	if feature != "" {
		header = "  -H " + quoteShell(web.FeatureHeader+": "+feature) + " \\\n"
	}
	return fmt.Sprintf(`curl -sN %s \
  -H "Authorization: Bearer $ACCESS_TOKEN" \
  -H "Idempotency-Key: $(uuidgen)" \
  -H 'Content-Type: application/json' \
%s  -d %s`, quoteShell(baseURL+"/v1/chat/completions"), header, quoteShell(formatJSON(streamed, "")))
}

func typeScriptCode(baseURL, feature, model string, body map[string]any) string {
	options := ""
	if feature != "" {
		options = ", { feature: " + quoteJSON(feature) + " }"
	}
	return fmt.Sprintf(`import { Purser } from "@purser/sdk";

const purser = new Purser({ baseURL: %s, clientID: process.env.CLIENT_ID! });
const connection = purser.withToken(process.env.ACCESS_TOKEN!);

const stream = connection.stream(%s, %s%s);
for await (const chunk of stream) process.stdout.write(chunk.text);
const bill = await stream.bill();
console.log("\nCharged:", bill?.user_charge_display);`,
		quoteJSON(baseURL), quoteJSON(model), formatJSON(body, ""), options)
}

func pythonCode(baseURL, feature, model string, body map[string]any) string {
	options := ""
	if feature != "" {
		options = ", feature=" + quoteJSON(feature)
	}
	return fmt.Sprintf(`import os
from purser import Purser

purser = Purser(%s, os.environ["CLIENT_ID"])
connection = purser.with_token(os.environ["ACCESS_TOKEN"])

with connection.stream(%s, %s%s) as stream:
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    print("\nCharged:", stream.bill().user_charge_display)`,
		quoteJSON(baseURL), quoteJSON(model), formatPython(body, "    "), options)
}

// formatPython returns a value from JSON as an expression of Python.
func formatPython(value any, prefix string) string {
	switch value := value.(type) {
	case nil:
		return "None"
	case bool:
		if value {
			return "True"
		}
		return "False"
	case []any:
		return formatPythonList("[", "]", prefix, len(value), func(i int, prefix string) string {
			return formatPython(value[i], prefix)
		})
	case map[string]any:
		names := slices.Sorted(maps.Keys(value))
		return formatPythonList("{", "}", prefix, len(names), func(i int, prefix string) string {
			return quoteJSON(names[i]) + ": " + formatPython(value[names[i]], prefix)
		})
	}
	return formatJSON(value, prefix) // a string or a number: the same in Python
}

func formatPythonList(open, end, prefix string, n int, item func(i int, prefix string) string) string {
	if n == 0 {
		return open + end
	}
	var b strings.Builder
	b.WriteString(open)
	for i := range n {
		b.WriteString("\n" + prefix + "    " + item(i, prefix+"    ") + ",")
	}
	return b.String() + "\n" + prefix + end
}

// goConstructors are the functions of the SDK for a message that is only text.
var goConstructors = map[string]string{
	"system": "SystemMessage", "user": "UserMessage", "assistant": "AssistantMessage",
}

func goCode(baseURL, feature, model string, body map[string]any) string {
	var fields strings.Builder
	extra := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if name == "messages" {
			if list, ok := goMessages(body[name]); ok {
				fields.WriteString("\t\tMessages: []purser.Message{\n" + list + "\t\t},\n")
				continue
			}
		}
		if limit, ok := body[name].(float64); ok && name == "max_tokens" {
			fields.WriteString("\t\tMaxTokens: " + strconv.FormatFloat(limit, 'f', -1, 64) + ",\n")
			continue
		}
		extra[name] = body[name]
	}
	if feature != "" {
		fmt.Fprintf(&fields, "\t\tFeature: %q,\n", feature)
	}
	imports := ""
	if len(extra) > 0 {
		imports = "\t\"encoding/json\"\n"
		fields.WriteString("\t\tExtra: map[string]any{\n")
		for _, name := range slices.Sorted(maps.Keys(extra)) {
			fmt.Fprintf(&fields, "\t\t\t%q: json.RawMessage(%s),\n", name, quoteGo(formatJSON(extra[name], "")))
		}
		fields.WriteString("\t\t},\n")
	}
	return fmt.Sprintf(`package main

import (
	"context"
%s	"fmt"
	"log"
	"os"

	purser "github.com/purserhq/purser/sdk/go"
)

func main() {
	client := purser.New(purser.Options{BaseURL: %q, ClientID: os.Getenv("CLIENT_ID")})
	connection := client.WithToken(os.Getenv("ACCESS_TOKEN"))
	stream := connection.Stream(context.Background(), %q, purser.ChatRequest{
%s	})
	for chunk, err := range stream.Chunks() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(chunk.Text)
	}
	bill, err := stream.Bill()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("\nCharged:", bill.UserChargeDisplay)
}`, imports, baseURL, model, fields.String())
}

// goMessages returns messages as elements of a slice, and false if one is more than text.
func goMessages(value any) (string, bool) {
	list, ok := value.([]any)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for _, item := range list {
		m, _ := item.(map[string]any)
		role, _ := m["role"].(string)
		text, isText := m["content"].(string)
		constructor := goConstructors[role]
		if constructor == "" || !isText || len(m) != 2 {
			return "", false
		}
		fmt.Fprintf(&b, "\t\t\tpurser.%s(%q),\n", constructor, text)
	}
	return b.String(), true
}

// quoteGo quotes text as a raw string literal of Go if it can be one.
func quoteGo(text string) string {
	if strconv.CanBackquote(strings.ReplaceAll(text, "\n", "")) {
		return "`" + text + "`"
	}
	return strconv.Quote(text)
}
