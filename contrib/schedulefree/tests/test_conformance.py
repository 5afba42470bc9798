"""What every component of nlpkernel has to hold, asked of these."""

from nlpkernel_sdk.conform import conformance

test_conformance = conformance("nlpkernel-plugin-schedule-free", at_least=100)
