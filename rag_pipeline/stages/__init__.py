"""The pure stages: parse, clean, chunk, filter. Typed record in, typed record out, settings last."""
