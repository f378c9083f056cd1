import java.net.InetAddress;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Kafka's own authorizer. A line of standard input has words between tabs: "rule" and its seven fields; "begin", the super
 * users and whether everything is allowed without a rule, which makes an authorizer of the rules so far; "ask" and principal,
 * host, operation, type and name of a resource, or without the name any resource of the type. Each question is answered by
 * ALLOWED or DENIED.
 */
public class AuthorizerOracle {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "CONTROLLER"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 1; }
        public int requestVersion() { return 1; }
        public String clientId() { return ""; }
        public int correlationId() { return 1; }
    }

    public static void main(String[] args) throws Exception {
        Map<Uuid, StandardAcl> rules = new HashMap<>();
        StandardAuthorizer authorizer = null;
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t");
            if (words[0].equals("rule")) {
                rules.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(words[1])), words[2],
                    PatternType.fromCode(Byte.parseByte(words[3])), words[4], words[5],
                    AclOperation.fromCode(Byte.parseByte(words[6])),
                    AclPermissionType.fromCode(Byte.parseByte(words[7]))));
            } else if (words[0].equals("begin")) {
                authorizer = new StandardAuthorizer();
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new LinkedHashMap<>()));
                authorizer.configure(Map.of("super.users", words[1], "allow.everyone.if.no.acl.found", words[2]));
                authorizer.loadSnapshot(rules);
                authorizer.completeInitialLoad();
                rules = new HashMap<>();
            } else {
                Context context = new Context(
                    SecurityUtils.parseKafkaPrincipal(words[1]), InetAddress.getByName(words[2]));
                AclOperation operation = AclOperation.fromCode(Byte.parseByte(words[3]));
                ResourceType type = ResourceType.fromCode(Byte.parseByte(words[4]));
                System.out.println(words.length < 6
                    ? authorizer.authorizeByResourceType(context, operation, type)
                    : authorizer.authorize(context, List.of(new Action(
                        operation, new ResourcePattern(type, words[5], PatternType.LITERAL), 1, true, true))).get(0));
            }
        }
    }
}
