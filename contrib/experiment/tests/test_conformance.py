"""What every component of nlpkernel has to hold, asked of this one."""

from nlpkernel_sdk.conform import conformance

test_conformance = conformance("nlpkernel-plugin-experiment", at_least=40)
