import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.TreeSet;

import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * What Kafka makes of properties files, and its own table of settings. A line of standard input is a path; the answer is
 * a line, "refused" and why, or "read" and the node's id, directories, rack, secret and the protocols of its listeners,
 * between tabs. The line "settings" is answered with a line for each key of Kafka's ConfigDefs, the line "documentation"
 * with the texts about them.
 */
public class ConfigOracle {
    public static void main(String[] args) throws Exception {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String line = lines.nextLine();
            if (line.equals("settings")) {
                settings();
            } else if (line.equals("documentation")) {
                documentation();
            } else {
                System.out.println(answer(line).replace("\n", "\\n"));
            }
        }
    }

    private static String answer(String path) {
        try {
            KafkaConfig config = new KafkaConfig(Utils.loadProps(path), false);
            Password secret = config.getPassword("delegation.token.secret.key");
            TreeMap<String, String> protocols = new TreeMap<>();
            config.listeners().foreach(one -> protocols.put(one.listener(), one.securityProtocol().name));
            return String.join("\t", "read", String.valueOf(config.nodeId()), String.join(",", config.logDirs()),
                String.valueOf(config.getString("broker.rack")), secret == null ? "null" : secret.value(),
                protocols.toString());
        } catch (RuntimeException refused) {
            return "refused\t" + refused;
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    private static void settings() throws Exception {
        print("broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig.dynamicConfigUpdateModes());
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("group", GroupConfig.CONFIG_DEF, Map.of());
        print("client-metrics", ClientMetricsConfigs.configDef(), Map.of());
        print("quota", QuotaConfig.userAndClientQuotaConfigs(), Map.of());
        print("ip-quota", QuotaConfig.ipConfigs(), Map.of());
        print("broker-quota", QuotaConfig.brokerQuotaConfigs(), Map.of());
    }

    private static void documentation() throws Exception {
        Map<String, Map<String, String>> all = new TreeMap<>();
        Map<String, ConfigDef> kinds = Map.of("broker", AbstractKafkaConfig.CONFIG_DEF, "topic", LogConfig.configDefCopy(),
            "group", GroupConfig.CONFIG_DEF, "client-metrics", ClientMetricsConfigs.configDef());
        kinds.forEach((kind, definition) -> definition.configKeys().forEach((name, key) ->
            all.computeIfAbsent(kind, one -> new TreeMap<>()).put(name, key.documentation)));
        System.out.println(new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(all));
    }

    private static void print(String kind, ConfigDef definition, Map<String, String> modes) throws Exception {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String value = !key.hasDefault() ? "required"
                : key.defaultValue == null ? "null"
                : "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(String.join("|", kind, key.name, key.type.name(), key.importance.name(),
                modes.getOrDefault(key.name, "read-only"), key.internalConfig ? "internal" : "public", value,
                key.validator == null ? "-" : limits(key.validator).trim()));
        }
    }

    /** A validator in words that a program reads: its class, and what it compares with. */
    private static String limits(ConfigDef.Validator one) throws Exception {
        if (one instanceof ConfigDef.Range) {
            return "range " + field(one, "min") + " " + field(one, "max");
        }
        if (one instanceof ConfigDef.ValidString) {
            return "words " + words(field(one, "validStrings"));
        }
        if (one instanceof ConfigDef.CaseInsensitiveValidString) {
            return "words-of-any-case " + words(new TreeSet<>((Collection<?>) field(one, "validStrings")));
        }
        if (one instanceof ConfigDef.ValidList) {
            Object valid = field(one, "validString");
            return "list " + field(one, "isEmptyAllowed") + " " + field(one, "isNullAllowed") + " "
                + words(field(valid, "validStrings"));
        }
        if (one instanceof ConfigDef.CompositeValidator) {
            StringBuilder all = new StringBuilder();
            for (Object part : (List<?>) field(one, "validators")) {
                all.append(all.isEmpty() ? "" : "; ").append(limits((ConfigDef.Validator) part));
            }
            return all.toString();
        }
        return "other " + one;
    }

    private static String words(Object found) {
        return String.join(",", ((Collection<?>) found).stream().map(String::valueOf).toList());
    }

    private static Object field(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }
}
