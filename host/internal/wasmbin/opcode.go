package wasmbin

// Op is an opcode. Opcodes behind the prefix byte 0xFC are 0xFC00 + their number.
type Op uint16

// The opcodes of the admitted features.
const (
	OpUnreachable       Op = 0x00
	OpNop               Op = 0x01
	OpBlock             Op = 0x02
	OpLoop              Op = 0x03
	OpIf                Op = 0x04
	OpElse              Op = 0x05
	OpEnd               Op = 0x0B
	OpBr                Op = 0x0C
	OpBrIf              Op = 0x0D
	OpBrTable           Op = 0x0E
	OpReturn            Op = 0x0F
	OpCall              Op = 0x10
	OpCallIndirect      Op = 0x11
	OpDrop              Op = 0x1A
	OpSelect            Op = 0x1B
	OpSelectT           Op = 0x1C
	OpLocalGet          Op = 0x20
	OpLocalSet          Op = 0x21
	OpLocalTee          Op = 0x22
	OpGlobalGet         Op = 0x23
	OpGlobalSet         Op = 0x24
	OpTableGet          Op = 0x25
	OpTableSet          Op = 0x26
	OpI32Load           Op = 0x28
	OpI64Load           Op = 0x29
	OpF32Load           Op = 0x2A
	OpF64Load           Op = 0x2B
	OpI32Load8S         Op = 0x2C
	OpI32Load8U         Op = 0x2D
	OpI32Load16S        Op = 0x2E
	OpI32Load16U        Op = 0x2F
	OpI64Load8S         Op = 0x30
	OpI64Load8U         Op = 0x31
	OpI64Load16S        Op = 0x32
	OpI64Load16U        Op = 0x33
	OpI64Load32S        Op = 0x34
	OpI64Load32U        Op = 0x35
	OpI32Store          Op = 0x36
	OpI64Store          Op = 0x37
	OpF32Store          Op = 0x38
	OpF64Store          Op = 0x39
	OpI32Store8         Op = 0x3A
	OpI32Store16        Op = 0x3B
	OpI64Store8         Op = 0x3C
	OpI64Store16        Op = 0x3D
	OpI64Store32        Op = 0x3E
	OpMemorySize        Op = 0x3F
	OpMemoryGrow        Op = 0x40
	OpI32Const          Op = 0x41
	OpI64Const          Op = 0x42
	OpF32Const          Op = 0x43
	OpF64Const          Op = 0x44
	OpI32Eqz            Op = 0x45
	OpI32Eq             Op = 0x46
	OpI32Ne             Op = 0x47
	OpI32LtS            Op = 0x48
	OpI32LtU            Op = 0x49
	OpI32GtS            Op = 0x4A
	OpI32GtU            Op = 0x4B
	OpI32LeS            Op = 0x4C
	OpI32LeU            Op = 0x4D
	OpI32GeS            Op = 0x4E
	OpI32GeU            Op = 0x4F
	OpI64Eqz            Op = 0x50
	OpI64Eq             Op = 0x51
	OpI64Ne             Op = 0x52
	OpI64LtS            Op = 0x53
	OpI64LtU            Op = 0x54
	OpI64GtS            Op = 0x55
	OpI64GtU            Op = 0x56
	OpI64LeS            Op = 0x57
	OpI64LeU            Op = 0x58
	OpI64GeS            Op = 0x59
	OpI64GeU            Op = 0x5A
	OpF32Eq             Op = 0x5B
	OpF32Ne             Op = 0x5C
	OpF32Lt             Op = 0x5D
	OpF32Gt             Op = 0x5E
	OpF32Le             Op = 0x5F
	OpF32Ge             Op = 0x60
	OpF64Eq             Op = 0x61
	OpF64Ne             Op = 0x62
	OpF64Lt             Op = 0x63
	OpF64Gt             Op = 0x64
	OpF64Le             Op = 0x65
	OpF64Ge             Op = 0x66
	OpI32Clz            Op = 0x67
	OpI32Ctz            Op = 0x68
	OpI32Popcnt         Op = 0x69
	OpI32Add            Op = 0x6A
	OpI32Sub            Op = 0x6B
	OpI32Mul            Op = 0x6C
	OpI32DivS           Op = 0x6D
	OpI32DivU           Op = 0x6E
	OpI32RemS           Op = 0x6F
	OpI32RemU           Op = 0x70
	OpI32And            Op = 0x71
	OpI32Or             Op = 0x72
	OpI32Xor            Op = 0x73
	OpI32Shl            Op = 0x74
	OpI32ShrS           Op = 0x75
	OpI32ShrU           Op = 0x76
	OpI32Rotl           Op = 0x77
	OpI32Rotr           Op = 0x78
	OpI64Clz            Op = 0x79
	OpI64Ctz            Op = 0x7A
	OpI64Popcnt         Op = 0x7B
	OpI64Add            Op = 0x7C
	OpI64Sub            Op = 0x7D
	OpI64Mul            Op = 0x7E
	OpI64DivS           Op = 0x7F
	OpI64DivU           Op = 0x80
	OpI64RemS           Op = 0x81
	OpI64RemU           Op = 0x82
	OpI64And            Op = 0x83
	OpI64Or             Op = 0x84
	OpI64Xor            Op = 0x85
	OpI64Shl            Op = 0x86
	OpI64ShrS           Op = 0x87
	OpI64ShrU           Op = 0x88
	OpI64Rotl           Op = 0x89
	OpI64Rotr           Op = 0x8A
	OpF32Abs            Op = 0x8B
	OpF32Neg            Op = 0x8C
	OpF32Ceil           Op = 0x8D
	OpF32Floor          Op = 0x8E
	OpF32Trunc          Op = 0x8F
	OpF32Nearest        Op = 0x90
	OpF32Sqrt           Op = 0x91
	OpF32Add            Op = 0x92
	OpF32Sub            Op = 0x93
	OpF32Mul            Op = 0x94
	OpF32Div            Op = 0x95
	OpF32Min            Op = 0x96
	OpF32Max            Op = 0x97
	OpF32Copysign       Op = 0x98
	OpF64Abs            Op = 0x99
	OpF64Neg            Op = 0x9A
	OpF64Ceil           Op = 0x9B
	OpF64Floor          Op = 0x9C
	OpF64Trunc          Op = 0x9D
	OpF64Nearest        Op = 0x9E
	OpF64Sqrt           Op = 0x9F
	OpF64Add            Op = 0xA0
	OpF64Sub            Op = 0xA1
	OpF64Mul            Op = 0xA2
	OpF64Div            Op = 0xA3
	OpF64Min            Op = 0xA4
	OpF64Max            Op = 0xA5
	OpF64Copysign       Op = 0xA6
	OpI32WrapI64        Op = 0xA7
	OpI32TruncF32S      Op = 0xA8
	OpI32TruncF32U      Op = 0xA9
	OpI32TruncF64S      Op = 0xAA
	OpI32TruncF64U      Op = 0xAB
	OpI64ExtendI32S     Op = 0xAC
	OpI64ExtendI32U     Op = 0xAD
	OpI64TruncF32S      Op = 0xAE
	OpI64TruncF32U      Op = 0xAF
	OpI64TruncF64S      Op = 0xB0
	OpI64TruncF64U      Op = 0xB1
	OpF32ConvertI32S    Op = 0xB2
	OpF32ConvertI32U    Op = 0xB3
	OpF32ConvertI64S    Op = 0xB4
	OpF32ConvertI64U    Op = 0xB5
	OpF32DemoteF64      Op = 0xB6
	OpF64ConvertI32S    Op = 0xB7
	OpF64ConvertI32U    Op = 0xB8
	OpF64ConvertI64S    Op = 0xB9
	OpF64ConvertI64U    Op = 0xBA
	OpF64PromoteF32     Op = 0xBB
	OpI32ReinterpretF32 Op = 0xBC
	OpI64ReinterpretF64 Op = 0xBD
	OpF32ReinterpretI32 Op = 0xBE
	OpF64ReinterpretI64 Op = 0xBF
	OpI32Extend8S       Op = 0xC0
	OpI32Extend16S      Op = 0xC1
	OpI64Extend8S       Op = 0xC2
	OpI64Extend16S      Op = 0xC3
	OpI64Extend32S      Op = 0xC4
	OpRefNull           Op = 0xD0
	OpRefIsNull         Op = 0xD1
	OpRefFunc           Op = 0xD2
	OpI32TruncSatF32S   Op = 0xFC00
	OpI32TruncSatF32U   Op = 0xFC01
	OpI32TruncSatF64S   Op = 0xFC02
	OpI32TruncSatF64U   Op = 0xFC03
	OpI64TruncSatF32S   Op = 0xFC04
	OpI64TruncSatF32U   Op = 0xFC05
	OpI64TruncSatF64S   Op = 0xFC06
	OpI64TruncSatF64U   Op = 0xFC07
	OpMemoryInit        Op = 0xFC08
	OpDataDrop          Op = 0xFC09
	OpMemoryCopy        Op = 0xFC0A
	OpMemoryFill        Op = 0xFC0B
	OpTableInit         Op = 0xFC0C
	OpElemDrop          Op = 0xFC0D
	OpTableCopy         Op = 0xFC0E
	OpTableGrow         Op = 0xFC0F
	OpTableSize         Op = 0xFC10
	OpTableFill         Op = 0xFC11
)

// numFC is the number of opcodes behind the prefix byte 0xFC.
const numFC = 18

// String returns the name that the text format uses.
func (o Op) String() string {
	if d := o.info(); d != nil {
		return d.name
	}
	return "unknown"
}

// Known tells whether the opcode belongs to an admitted feature.
func (o Op) Known() bool { return o.info() != nil }

func (o Op) info() *opInfo {
	var d *opInfo
	switch {
	case o < 0x100:
		d = &opTable[o]
	case o >= 0xFC00 && o < 0xFC00+numFC:
		d = &fcTable[o-0xFC00]
	default:
		return nil
	}
	if d.imm == immUnknown {
		return nil
	}
	return d
}

// immKind is the shape of an instruction's immediates.
type immKind uint8

const (
	immUnknown immKind = iota
	immNone
	immBlock
	immIndex
	immIndex2
	immBrTable
	immCallIndirect
	immSelectT
	immMem
	immMemIdx
	immMemInit
	immMemCopy
	immI32
	immI64
	immF32
	immF64
	immRefType
)

type opInfo struct {
	name string
	imm  immKind
}

var opTable = [256]opInfo{
	OpUnreachable:       {"unreachable", immNone},
	OpNop:               {"nop", immNone},
	OpBlock:             {"block", immBlock},
	OpLoop:              {"loop", immBlock},
	OpIf:                {"if", immBlock},
	OpElse:              {"else", immNone},
	OpEnd:               {"end", immNone},
	OpBr:                {"br", immIndex},
	OpBrIf:              {"br_if", immIndex},
	OpBrTable:           {"br_table", immBrTable},
	OpReturn:            {"return", immNone},
	OpCall:              {"call", immIndex},
	OpCallIndirect:      {"call_indirect", immCallIndirect},
	OpDrop:              {"drop", immNone},
	OpSelect:            {"select", immNone},
	OpSelectT:           {"select", immSelectT},
	OpLocalGet:          {"local.get", immIndex},
	OpLocalSet:          {"local.set", immIndex},
	OpLocalTee:          {"local.tee", immIndex},
	OpGlobalGet:         {"global.get", immIndex},
	OpGlobalSet:         {"global.set", immIndex},
	OpTableGet:          {"table.get", immIndex},
	OpTableSet:          {"table.set", immIndex},
	OpI32Load:           {"i32.load", immMem},
	OpI64Load:           {"i64.load", immMem},
	OpF32Load:           {"f32.load", immMem},
	OpF64Load:           {"f64.load", immMem},
	OpI32Load8S:         {"i32.load8_s", immMem},
	OpI32Load8U:         {"i32.load8_u", immMem},
	OpI32Load16S:        {"i32.load16_s", immMem},
	OpI32Load16U:        {"i32.load16_u", immMem},
	OpI64Load8S:         {"i64.load8_s", immMem},
	OpI64Load8U:         {"i64.load8_u", immMem},
	OpI64Load16S:        {"i64.load16_s", immMem},
	OpI64Load16U:        {"i64.load16_u", immMem},
	OpI64Load32S:        {"i64.load32_s", immMem},
	OpI64Load32U:        {"i64.load32_u", immMem},
	OpI32Store:          {"i32.store", immMem},
	OpI64Store:          {"i64.store", immMem},
	OpF32Store:          {"f32.store", immMem},
	OpF64Store:          {"f64.store", immMem},
	OpI32Store8:         {"i32.store8", immMem},
	OpI32Store16:        {"i32.store16", immMem},
	OpI64Store8:         {"i64.store8", immMem},
	OpI64Store16:        {"i64.store16", immMem},
	OpI64Store32:        {"i64.store32", immMem},
	OpMemorySize:        {"memory.size", immMemIdx},
	OpMemoryGrow:        {"memory.grow", immMemIdx},
	OpI32Const:          {"i32.const", immI32},
	OpI64Const:          {"i64.const", immI64},
	OpF32Const:          {"f32.const", immF32},
	OpF64Const:          {"f64.const", immF64},
	OpI32Eqz:            {"i32.eqz", immNone},
	OpI32Eq:             {"i32.eq", immNone},
	OpI32Ne:             {"i32.ne", immNone},
	OpI32LtS:            {"i32.lt_s", immNone},
	OpI32LtU:            {"i32.lt_u", immNone},
	OpI32GtS:            {"i32.gt_s", immNone},
	OpI32GtU:            {"i32.gt_u", immNone},
	OpI32LeS:            {"i32.le_s", immNone},
	OpI32LeU:            {"i32.le_u", immNone},
	OpI32GeS:            {"i32.ge_s", immNone},
	OpI32GeU:            {"i32.ge_u", immNone},
	OpI64Eqz:            {"i64.eqz", immNone},
	OpI64Eq:             {"i64.eq", immNone},
	OpI64Ne:             {"i64.ne", immNone},
	OpI64LtS:            {"i64.lt_s", immNone},
	OpI64LtU:            {"i64.lt_u", immNone},
	OpI64GtS:            {"i64.gt_s", immNone},
	OpI64GtU:            {"i64.gt_u", immNone},
	OpI64LeS:            {"i64.le_s", immNone},
	OpI64LeU:            {"i64.le_u", immNone},
	OpI64GeS:            {"i64.ge_s", immNone},
	OpI64GeU:            {"i64.ge_u", immNone},
	OpF32Eq:             {"f32.eq", immNone},
	OpF32Ne:             {"f32.ne", immNone},
	OpF32Lt:             {"f32.lt", immNone},
	OpF32Gt:             {"f32.gt", immNone},
	OpF32Le:             {"f32.le", immNone},
	OpF32Ge:             {"f32.ge", immNone},
	OpF64Eq:             {"f64.eq", immNone},
	OpF64Ne:             {"f64.ne", immNone},
	OpF64Lt:             {"f64.lt", immNone},
	OpF64Gt:             {"f64.gt", immNone},
	OpF64Le:             {"f64.le", immNone},
	OpF64Ge:             {"f64.ge", immNone},
	OpI32Clz:            {"i32.clz", immNone},
	OpI32Ctz:            {"i32.ctz", immNone},
	OpI32Popcnt:         {"i32.popcnt", immNone},
	OpI32Add:            {"i32.add", immNone},
	OpI32Sub:            {"i32.sub", immNone},
	OpI32Mul:            {"i32.mul", immNone},
	OpI32DivS:           {"i32.div_s", immNone},
	OpI32DivU:           {"i32.div_u", immNone},
	OpI32RemS:           {"i32.rem_s", immNone},
	OpI32RemU:           {"i32.rem_u", immNone},
	OpI32And:            {"i32.and", immNone},
	OpI32Or:             {"i32.or", immNone},
	OpI32Xor:            {"i32.xor", immNone},
	OpI32Shl:            {"i32.shl", immNone},
	OpI32ShrS:           {"i32.shr_s", immNone},
	OpI32ShrU:           {"i32.shr_u", immNone},
	OpI32Rotl:           {"i32.rotl", immNone},
	OpI32Rotr:           {"i32.rotr", immNone},
	OpI64Clz:            {"i64.clz", immNone},
	OpI64Ctz:            {"i64.ctz", immNone},
	OpI64Popcnt:         {"i64.popcnt", immNone},
	OpI64Add:            {"i64.add", immNone},
	OpI64Sub:            {"i64.sub", immNone},
	OpI64Mul:            {"i64.mul", immNone},
	OpI64DivS:           {"i64.div_s", immNone},
	OpI64DivU:           {"i64.div_u", immNone},
	OpI64RemS:           {"i64.rem_s", immNone},
	OpI64RemU:           {"i64.rem_u", immNone},
	OpI64And:            {"i64.and", immNone},
	OpI64Or:             {"i64.or", immNone},
	OpI64Xor:            {"i64.xor", immNone},
	OpI64Shl:            {"i64.shl", immNone},
	OpI64ShrS:           {"i64.shr_s", immNone},
	OpI64ShrU:           {"i64.shr_u", immNone},
	OpI64Rotl:           {"i64.rotl", immNone},
	OpI64Rotr:           {"i64.rotr", immNone},
	OpF32Abs:            {"f32.abs", immNone},
	OpF32Neg:            {"f32.neg", immNone},
	OpF32Ceil:           {"f32.ceil", immNone},
	OpF32Floor:          {"f32.floor", immNone},
	OpF32Trunc:          {"f32.trunc", immNone},
	OpF32Nearest:        {"f32.nearest", immNone},
	OpF32Sqrt:           {"f32.sqrt", immNone},
	OpF32Add:            {"f32.add", immNone},
	OpF32Sub:            {"f32.sub", immNone},
	OpF32Mul:            {"f32.mul", immNone},
	OpF32Div:            {"f32.div", immNone},
	OpF32Min:            {"f32.min", immNone},
	OpF32Max:            {"f32.max", immNone},
	OpF32Copysign:       {"f32.copysign", immNone},
	OpF64Abs:            {"f64.abs", immNone},
	OpF64Neg:            {"f64.neg", immNone},
	OpF64Ceil:           {"f64.ceil", immNone},
	OpF64Floor:          {"f64.floor", immNone},
	OpF64Trunc:          {"f64.trunc", immNone},
	OpF64Nearest:        {"f64.nearest", immNone},
	OpF64Sqrt:           {"f64.sqrt", immNone},
	OpF64Add:            {"f64.add", immNone},
	OpF64Sub:            {"f64.sub", immNone},
	OpF64Mul:            {"f64.mul", immNone},
	OpF64Div:            {"f64.div", immNone},
	OpF64Min:            {"f64.min", immNone},
	OpF64Max:            {"f64.max", immNone},
	OpF64Copysign:       {"f64.copysign", immNone},
	OpI32WrapI64:        {"i32.wrap_i64", immNone},
	OpI32TruncF32S:      {"i32.trunc_f32_s", immNone},
	OpI32TruncF32U:      {"i32.trunc_f32_u", immNone},
	OpI32TruncF64S:      {"i32.trunc_f64_s", immNone},
	OpI32TruncF64U:      {"i32.trunc_f64_u", immNone},
	OpI64ExtendI32S:     {"i64.extend_i32_s", immNone},
	OpI64ExtendI32U:     {"i64.extend_i32_u", immNone},
	OpI64TruncF32S:      {"i64.trunc_f32_s", immNone},
	OpI64TruncF32U:      {"i64.trunc_f32_u", immNone},
	OpI64TruncF64S:      {"i64.trunc_f64_s", immNone},
	OpI64TruncF64U:      {"i64.trunc_f64_u", immNone},
	OpF32ConvertI32S:    {"f32.convert_i32_s", immNone},
	OpF32ConvertI32U:    {"f32.convert_i32_u", immNone},
	OpF32ConvertI64S:    {"f32.convert_i64_s", immNone},
	OpF32ConvertI64U:    {"f32.convert_i64_u", immNone},
	OpF32DemoteF64:      {"f32.demote_f64", immNone},
	OpF64ConvertI32S:    {"f64.convert_i32_s", immNone},
	OpF64ConvertI32U:    {"f64.convert_i32_u", immNone},
	OpF64ConvertI64S:    {"f64.convert_i64_s", immNone},
	OpF64ConvertI64U:    {"f64.convert_i64_u", immNone},
	OpF64PromoteF32:     {"f64.promote_f32", immNone},
	OpI32ReinterpretF32: {"i32.reinterpret_f32", immNone},
	OpI64ReinterpretF64: {"i64.reinterpret_f64", immNone},
	OpF32ReinterpretI32: {"f32.reinterpret_i32", immNone},
	OpF64ReinterpretI64: {"f64.reinterpret_i64", immNone},
	OpI32Extend8S:       {"i32.extend8_s", immNone},
	OpI32Extend16S:      {"i32.extend16_s", immNone},
	OpI64Extend8S:       {"i64.extend8_s", immNone},
	OpI64Extend16S:      {"i64.extend16_s", immNone},
	OpI64Extend32S:      {"i64.extend32_s", immNone},
	OpRefNull:           {"ref.null", immRefType},
	OpRefIsNull:         {"ref.is_null", immNone},
	OpRefFunc:           {"ref.func", immIndex},
}

var fcTable = [numFC]opInfo{
	OpI32TruncSatF32S - 0xFC00: {"i32.trunc_sat_f32_s", immNone},
	OpI32TruncSatF32U - 0xFC00: {"i32.trunc_sat_f32_u", immNone},
	OpI32TruncSatF64S - 0xFC00: {"i32.trunc_sat_f64_s", immNone},
	OpI32TruncSatF64U - 0xFC00: {"i32.trunc_sat_f64_u", immNone},
	OpI64TruncSatF32S - 0xFC00: {"i64.trunc_sat_f32_s", immNone},
	OpI64TruncSatF32U - 0xFC00: {"i64.trunc_sat_f32_u", immNone},
	OpI64TruncSatF64S - 0xFC00: {"i64.trunc_sat_f64_s", immNone},
	OpI64TruncSatF64U - 0xFC00: {"i64.trunc_sat_f64_u", immNone},
	OpMemoryInit - 0xFC00:      {"memory.init", immMemInit},
	OpDataDrop - 0xFC00:        {"data.drop", immIndex},
	OpMemoryCopy - 0xFC00:      {"memory.copy", immMemCopy},
	OpMemoryFill - 0xFC00:      {"memory.fill", immMemIdx},
	OpTableInit - 0xFC00:       {"table.init", immIndex2},
	OpElemDrop - 0xFC00:        {"elem.drop", immIndex},
	OpTableCopy - 0xFC00:       {"table.copy", immIndex2},
	OpTableGrow - 0xFC00:       {"table.grow", immIndex},
	OpTableSize - 0xFC00:       {"table.size", immIndex},
	OpTableFill - 0xFC00:       {"table.fill", immIndex},
}
