package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rule identifies why a module is refused, or what is worth knowing about it.
// Rules are stable: scripts and CI act on them. docs/strategy-rules.md lists
// them, and a test holds it against this file.
type Rule string

// The rules, in the order in which they are checked.
const (
	RuleModuleSize Rule = "module-size"
	RuleNotWasm    Rule = "not-wasm"
	RuleMalformed  Rule = "malformed"

	RuleComponent       Rule = "component"
	RuleSIMD            Rule = "feature-simd"
	RuleThreads         Rule = "feature-threads"
	RuleTailCall        Rule = "feature-tail-call"
	RuleExceptions      Rule = "feature-exceptions"
	RuleGC              Rule = "feature-gc"
	RuleMultiMemory     Rule = "feature-multi-memory"
	RuleMemory64        Rule = "feature-memory64"
	RuleTypedFuncRef    Rule = "feature-typed-funcref"
	RuleExtendedConst   Rule = "feature-extended-const"
	RuleCustomPageSizes Rule = "feature-custom-page-sizes"
	RuleWideArithmetic  Rule = "feature-wide-arithmetic"
	RuleStackSwitching  Rule = "feature-stack-switching"
	RuleUnknownOpcode   Rule = "unknown-instruction"

	RuleMemoryLimit   Rule = "memory-limit"
	RuleTableSize     Rule = "table-size"
	RuleTypeCount     Rule = "type-count"
	RuleSignature     Rule = "signature-size"
	RuleFunctionCount Rule = "function-count"
	RuleGlobalCount   Rule = "global-count"
	RuleExportCount   Rule = "export-count"
	RuleSegmentCount  Rule = "segment-count"
	RuleDataSize      Rule = "data-size"
	RuleLocals        Rule = "locals"
	RuleFunctionSize  Rule = "function-size"
	RuleNesting       Rule = "nesting-depth"
	RuleBlocks        Rule = "block-count"
	RuleBrTable       Rule = "br-table-length"
	RuleStack         Rule = "operand-stack"
	RuleCompileCost   Rule = "compile-cost"

	RuleReservedName     Rule = "reserved-name"
	RuleImport           Rule = "import-unknown"
	RuleImportType       Rule = "import-type"
	RuleExportMemory     Rule = "export-memory"
	RuleExportABI        Rule = "export-abi"
	RuleExportBuffer     Rule = "export-buffer"
	RuleExportAllocate   Rule = "export-allocate"
	RuleExportRebalance  Rule = "export-rebalance"
	RuleExportConfigure  Rule = "export-configure"
	RuleExportDescribe   Rule = "export-describe"
	RuleExportInitialize Rule = "export-initialize"

	RuleInvalid Rule = "invalid"
	RuleCompile Rule = "compile-failed"

	RuleStart      Rule = "start-failed"
	RuleInitialize Rule = "initialize-failed"
	RuleConfigure  Rule = "configure-failed"
	RuleWarmUp     Rule = "warm-up-failed"
	RuleCallFuel   Rule = "fuel-too-low"
	RuleDescribe   Rule = "describe-failed"

	RuleConfigKey     Rule = "config-unknown-key"
	RuleFreshInstance Rule = "fresh-instance"
	RuleCommandModule Rule = "command-module"
)

// Severity says what a finding means for the module.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // the module is refused
	SeverityWarning Severity = "warning" // it runs, but probably not as meant, or slowly
)

// ruleText is what a rule stands for: a line for the manual, and what its
// reader can do about it.
type ruleText struct {
	severity Severity
	means    string
	fix      string
}

var fixInit = fmt.Sprintf("see the message; start section, _initialize, drover_configure and the warm-up share %d M units of fuel and %.0f s", DefaultInitFuel/1_000_000, Compiler.initTimeout().Seconds())

const (
	fixFeature = "build for the base feature set: C and Rust -mcpu=mvp or without the +feature flag, AssemblyScript --disable; Go and TinyGo need no flag"
	fixSmaller = "split the function, lower the optimiser's inlining and unrolling, or move tables of constants into data"
	fixExport  = "export it as the contract says: pluginapi does so in Go, docs/writing-strategies.md says how other languages do"
)

var ruleTexts = map[Rule]ruleText{
	RuleModuleSize: {SeverityError, fmt.Sprintf("the module is larger than %d MiB", MaxModuleBytes>>20), "strip symbols and debug sections (Go -ldflags='-s -w', wasm-opt --strip)"},
	RuleNotWasm:    {SeverityError, "the file does not begin as a WebAssembly module does", "hand in the compiled .wasm file; text format goes through wat2wasm first"},
	RuleMalformed:  {SeverityError, "the binary format is violated, as in a truncated file", "build or copy the file again; wasm-validate tells more"},

	RuleComponent:       {SeverityError, "the file is a component, not a core module", "build a core module (wasm32-unknown-unknown or wasip1 rather than wasip2)"},
	RuleSIMD:            {SeverityError, "uses SIMD", fixFeature},
	RuleThreads:         {SeverityError, "uses threads: atomics, shared memory", fixFeature},
	RuleTailCall:        {SeverityError, "uses tail calls", fixFeature},
	RuleExceptions:      {SeverityError, "uses exception handling", fixFeature},
	RuleGC:              {SeverityError, "uses garbage-collected types", fixFeature},
	RuleMultiMemory:     {SeverityError, "uses more than one memory", fixFeature},
	RuleMemory64:        {SeverityError, "uses 64-bit memory", "build for wasm32"},
	RuleTypedFuncRef:    {SeverityError, "uses typed function references", fixFeature},
	RuleExtendedConst:   {SeverityError, "uses extended constant expressions", fixFeature},
	RuleCustomPageSizes: {SeverityError, "uses memory pages of another size", fixFeature},
	RuleWideArithmetic:  {SeverityError, "uses wide arithmetic", fixFeature},
	RuleStackSwitching:  {SeverityError, "uses stack switching", fixFeature},
	RuleUnknownOpcode:   {SeverityError, "holds an instruction of no known feature", "build with an older target, or hand in a newer file"},

	RuleMemoryLimit:   {SeverityError, "asks for more memory at the start than its limit", "lower the initial memory, or raise memory in node.toml and with --memory (at most 64MiB)"},
	RuleTableSize:     {SeverityError, fmt.Sprintf("has more than %d tables, more than %d elements in all of them at the start, or in element segments", maxTables, maxTableSize), "lower the initial size of the table to the number of functions in it"},
	RuleTypeCount:     {SeverityError, fmt.Sprintf("declares more than %d types", maxTypes), fixSmaller},
	RuleSignature:     {SeverityError, fmt.Sprintf("a function type has more than %d parameters or %d results", maxParams, maxResults), "pass a pointer to a structure"},
	RuleFunctionCount: {SeverityError, fmt.Sprintf("has more than %d functions and imports", maxFunctions), "link only what is used"},
	RuleGlobalCount:   {SeverityError, fmt.Sprintf("declares more than %d globals", maxGlobals), "keep state in memory"},
	RuleExportCount:   {SeverityError, fmt.Sprintf("has more than %d exports", maxExports), "export the contract's functions alone"},
	RuleSegmentCount:  {SeverityError, fmt.Sprintf("has more than %d data and element segments", maxSegments), "let the linker merge them"},
	RuleDataSize:      {SeverityError, "its data does not fit into its memory limit", "ship less data, or raise memory in node.toml (at most 64MiB)"},
	RuleLocals:        {SeverityError, fmt.Sprintf("a function has more than %d locals, parameters included", maxLocals), fixSmaller},
	RuleFunctionSize:  {SeverityError, fmt.Sprintf("a function has more than %d instructions, or %d with each call_indirect counted as %d, each division and truncation as %d, and each call, load and store as %d", maxInstructions, maxWeight, weightCallIndirect, weightDivide, weightAccess), fixSmaller},
	RuleNesting:       {SeverityError, fmt.Sprintf("blocks nest more than %d deep", maxNesting), fixSmaller},
	RuleBlocks:        {SeverityError, fmt.Sprintf("a function has more than %d branches and blocks, with those that metering adds", maxBlocks), fixSmaller},
	RuleBrTable:       {SeverityError, fmt.Sprintf("a br_table has more than %d entries", maxBrTable), "use a table in memory"},
	RuleStack:         {SeverityError, fmt.Sprintf("a function piles up more than %d operands", maxStack), "store intermediate results in locals"},
	RuleCompileCost:   {SeverityError, fmt.Sprintf("compiling it would take more than %.0f s and %.1f s a MiB, by an estimate for a busy machine", compileCostBase/1e9, compileCostPerByte*float64(1<<20)/1e9), fixSmaller},

	RuleReservedName:     {SeverityError, "uses a name that the host keeps for itself", "rename the import or export"},
	RuleImport:           {SeverityError, "imports what a strategy cannot have", "remove the import: only drover.log and the fixed WASI stubs exist (no files, no network, no real clock); what a linker imports from env (memory, memset) it did not find: docs/writing-strategies.md has flags that build"},
	RuleImportType:       {SeverityError, "imports a function with another signature than the host's", fixExport},
	RuleExportMemory:     {SeverityError, "does not export its memory as \"memory\"", fixExport},
	RuleExportABI:        {SeverityError, "lacks the marker drover_abi_v1: it is no strategy, or one for another contract", fixExport},
	RuleExportBuffer:     {SeverityError, "drover_buffer is missing or has another signature", fixExport},
	RuleExportAllocate:   {SeverityError, "drover_allocate is missing or has another signature", fixExport},
	RuleExportRebalance:  {SeverityError, "drover_rebalance is missing or has another signature", fixExport},
	RuleExportConfigure:  {SeverityError, "drover_configure has another signature", fixExport},
	RuleExportDescribe:   {SeverityError, "drover_describe has another signature", fixExport},
	RuleExportInitialize: {SeverityError, "_initialize has another signature", fixExport},

	RuleInvalid: {SeverityError, "does not pass WebAssembly validation", "a compiler bug or a hand-made file: wasm-validate tells more"},
	RuleCompile: {SeverityError, fmt.Sprintf("was not compiled within %.0f minutes", compileTimeout.Minutes()), fixSmaller},

	RuleStart:      {SeverityError, "its start section failed", fixInit},
	RuleInitialize: {SeverityError, "_initialize failed", fixInit},
	RuleConfigure:  {SeverityError, "drover_configure failed, or refused the configuration", "correct the configuration; `drover strategy describe` lists its keys"},
	RuleCallFuel:   {SeverityError, "the fuel of one call does not suffice to rebalance a plain cluster of two nodes", "raise the type's fuel; `drover strategy run` shows what a decision takes"},
	RuleWarmUp:     {SeverityError, "it failed to rebalance a plain cluster of two nodes", "run it: drover strategy run FILE --op rebalance --input with two nodes"},
	RuleDescribe:   {SeverityWarning, "drover_describe failed", "return the map that the contract describes"},

	RuleConfigKey:     {SeverityWarning, "its configuration has a key that it does not describe", "correct the key; `drover strategy describe` lists those that there are"},
	RuleFreshInstance: {SeverityWarning, "changes tables, drops segments or keeps references in globals, so that every call needs a new instance", "avoid table.set, table.grow, data.drop and elem.drop for speed"},
	RuleCommandModule: {SeverityWarning, "exports _start but no _initialize: its main function will not run", "build a library: Go -buildmode=c-shared, C -mexec-model=reactor, Rust crate-type cdylib"},
}

// RuleDoc documents one rule.
type RuleDoc struct {
	Rule       Rule
	Severity   Severity
	Means, Fix string
}

// Rules returns every rule, sorted by its identifier.
func Rules() []RuleDoc {
	out := make([]RuleDoc, 0, len(ruleTexts))
	for r, t := range ruleTexts {
		out = append(out, RuleDoc{r, t.severity, t.means, t.fix})
	}
	slices.SortFunc(out, func(a, b RuleDoc) int { return strings.Compare(string(a.Rule), string(b.Rule)) })
	return out
}

// Finding is one thing that admission has to say about a module.
type Finding struct {
	Rule     Rule     `json:"rule"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"` // names what it is about
	Fix      string   `json:"fix"`
	// Offset is where in the file, in bytes; nil where there is no one place.
	Offset *int `json:"offset"`
}

// String returns rule and message on one line.
func (f Finding) String() string {
	if f.Offset != nil {
		return fmt.Sprintf("%s at byte %d: %s", f.Rule, *f.Offset, f.Message)
	}
	return fmt.Sprintf("%s: %s", f.Rule, f.Message)
}

func finding(r Rule, format string, args ...any) Finding {
	t := ruleTexts[r]
	return Finding{Rule: r, Severity: t.severity, Message: clean(fmt.Sprintf(format, args...), maxText), Fix: t.fix}
}

func findingAt(offset int, r Rule, format string, args ...any) Finding {
	f := finding(r, format, args...)
	f.Offset = &offset
	return f
}

// refused tells whether any of the findings refuses the module.
func refused(fs []Finding) bool {
	for _, f := range fs {
		if f.Severity == SeverityError {
			return true
		}
	}
	return false
}

// RefusedError is a module that was not admitted. errors.Is finds ErrRefused.
type RefusedError struct {
	Findings []Finding // at least one with SeverityError
	Cause    error     // what the guest ended in, where it ran; may be nil
}

// Error names each finding that refuses the module, and the first fix.
func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString(ErrRefused.Error())
	fix := ""
	for _, f := range e.Findings {
		if f.Severity != SeverityError {
			continue
		}
		b.WriteString(": ")
		b.WriteString(f.String())
		if fix == "" {
			fix = f.Fix
		}
	}
	if fix != "" {
		b.WriteString(" (" + fix + ")")
	}
	return b.String()
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Rule returns the first rule that refuses the module.
func (e *RefusedError) Rule() Rule {
	for _, f := range e.Findings {
		if f.Severity == SeverityError {
			return f.Rule
		}
	}
	return ""
}

// RuleOf returns the rule of a refusal; empty for other errors.
func RuleOf(err error) Rule {
	var r *RefusedError
	if errors.As(err, &r) {
		return r.Rule()
	}
	return ""
}
