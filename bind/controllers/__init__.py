"""The controllers: each looks up what concerns a key, has it judged, and carries that out."""
