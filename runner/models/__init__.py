"""Models: what answers a round, as adapters behind one port.

Rules of this package: a model gives the chunks of parts and one `RoundEnd`, nothing of the stream around them. Provider
libraries are optional, and are loaded by the first call, never by an import.
"""
