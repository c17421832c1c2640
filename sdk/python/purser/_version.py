"""The version of the three SDKs, which is in sdk/VERSION."""

VERSION = "0.1.0"
