package wasmbin

import "fmt"

// Rule identifies why a module was not decoded. The values are stable: tools
// and documents refer to them.
type Rule string

// The rules.
const (
	RuleMalformed    Rule = "malformed"           // the format is violated
	RuleLimit        Rule = "limit"               // MaxLocals or MaxModuleLocals
	RuleBodySize     Rule = "body-size"           // MaxInstructions
	RuleSIMD         Rule = "simd"                // fixed-width and relaxed SIMD
	RuleThreads      Rule = "threads"             // atomics, shared memories
	RuleTailCall     Rule = "tail-call"           // return_call and its variants
	RuleExceptions   Rule = "exceptions"          // try, throw, tags
	RuleGC           Rule = "gc"                  // structs, arrays, i31, recursive types
	RuleMultiMemory  Rule = "multi-memory"        // more than one memory
	RuleMemory64     Rule = "memory64"            // 64-bit memories and tables
	RuleTypedFuncRef Rule = "typed-funcref"       // call_ref, typed references, table initialisers
	RuleExtendedCons Rule = "extended-const"      // arithmetic in constant expressions
	RulePageSizes    Rule = "custom-page-sizes"   // memories with pages of another size
	RuleComponent    Rule = "component"           // a component rather than a core module
	RuleWideArith    Rule = "wide-arithmetic"     // 128-bit additions and multiplications
	RuleStackSwitch  Rule = "stack-switching"     // continuations
	RuleUnknownOp    Rule = "unknown-instruction" // an opcode of no known feature
)

// Error is the error of Decode.
type Error struct {
	Offset int  // byte offset into the input
	Rule   Rule // stable identifier
	Msg    string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("wasm offset %d: %s (%s)", e.Offset, e.Msg, e.Rule)
}
