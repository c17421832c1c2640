package catalog

import "strings"

// Providers are the providers that may receive requests, in the order in which people read them.
var Providers = []string{"openai", "anthropic", "google"}

// providerNames are how the providers write their own names.
var providerNames = map[string]string{
	"openai":    "OpenAI",
	"anthropic": "Anthropic",
	"google":    "Google",
	"mock":      "Mock provider",
}

// ProviderName returns the name of a provider that people read: "OpenAI" for "openai".
func ProviderName(provider string) string {
	if name, ok := providerNames[provider]; ok || provider == "" {
		return name
	}
	return strings.ToUpper(provider[:1]) + provider[1:]
}
